// What the peers share: the nodes, reached over connections that are kept, and the ack, recorded idempotently.
import pg from 'pg';
import { Agent } from 'undici';

// NODES: the URLs of nodes 1, 2, ..., separated by blanks. PGHOST and so on: the database, as libpq and pg read it.
const urls = process.env.NODES.split(' ');
const agent = new Agent({ connections: 64, pipelining: 1, keepAliveTimeout: 60_000 });

export const RECORD = 'SELECT bench.record_ack($1, $2)';

export const makePool = (max) => new pg.Pool({ max });

/** One envelope to its node; throws unless the node took it, and then the queue repeats the job. */
export async function post({ round, node, envelope }) {
    const url = new URL(urls[node - 1]);
    const { statusCode, body } = await agent.request({
        origin: url.origin,
        path: url.pathname,
        method: 'POST',
        headers: { 'content-type': 'application/octet-stream', 'webhook-id': `bench:${round}:${node}:1` },
        body: Buffer.from(envelope, 'base64'),
    });
    await body.dump();
    if (statusCode !== 200) throw new Error(`node ${node} answered ${statusCode}`);
}

/** Tells whoever started this that work is taken from now on; ends when told to. */
export function ready(stop) {
    console.log('ready');
    process.on('SIGTERM', async () => {
        await stop();
        process.exit(0);
    });
}
