// The same job on pg-boss: a queue of envelopes, worked on in batches of 200. `deal`: submits rounds instead, 100 to a commit, since only its
// own insert() knows its tables; each line of stdin, PREFIX ROUNDS NODES QUORUM BYTES, is answered with a line once all are committed.
import { randomBytes } from 'node:crypto';
import { createInterface } from 'node:readline';
import { PgBoss } from 'pg-boss';
import { RECORD, makePool, post, ready } from './common.mjs';

const QUEUE = 'deliver';
const BATCH = 200;
const PER_COMMIT = 100;

const pool = makePool(32);
const boss = new PgBoss({ db: { executeSql: (text, values) => pool.query(text, values) } });
boss.on('error', (error) => console.error(error));

async function work() {
    await boss.start();
    await boss.createQueue(QUEUE);
    const options = { batchSize: BATCH, pollingIntervalSeconds: 0.5, burstWhenBatchFull: true, localConcurrency: 2 };
    await boss.work(QUEUE, options, (jobs) =>
        Promise.all(
            jobs.map(async ({ data }) => {
                await post(data);
                await pool.query({ name: 'record_ack', text: RECORD, values: [data.round, data.node] });
            }),
        ),
    );
    ready(() => boss.stop());
}

async function dealBatch(client, prefix, first, last, nodes, quorum, bytes) {
    const jobs = [];
    for (let i = first; i <= last; i++)
        for (let node = 1; node <= nodes; node++)
            jobs.push({ data: { round: `${prefix}${i}`, node, envelope: randomBytes(bytes).toString('base64') } });
    await client.query('BEGIN');
    await client.query(
        'INSERT INTO bench.round (round_id, quorum) SELECT $1 || i, $2 FROM generate_series($3::int, $4::int) i',
        [prefix, quorum, first, last],
    );
    await boss.insert(QUEUE, jobs, { db: { executeSql: (text, values) => client.query(text, values) } });
    await client.query('COMMIT');
}

async function deal() {
    await boss.start();
    const client = await pool.connect();
    for await (const line of createInterface({ input: process.stdin })) {
        const [prefix, ...numbers] = line.split(' ');
        const [rounds, nodes, quorum, bytes] = numbers.map(Number);
        for (let first = 1; first <= rounds; first += PER_COMMIT)
            await dealBatch(client, prefix, first, Math.min(first + PER_COMMIT - 1, rounds), nodes, quorum, bytes);
        console.log('dealt');
    }
    process.exit(0);
}

if (process.argv[2] === 'deal') await deal();
else await work();
