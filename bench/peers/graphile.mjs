// The same job on graphile-worker: a task per envelope, jobs fetched and completed in batches as its documentation advises for load.
// `--tuned`: the ack's statement is prepared as well.
import { run } from 'graphile-worker';
import { RECORD, makePool, post, ready } from './common.mjs';

const tuned = process.argv.includes('--tuned');
const pgPool = makePool(32);
const ack = tuned ? { name: 'record_ack', text: RECORD } : { text: RECORD };

const runner = await run({
    pgPool,
    noHandleSignals: true,
    logger: undefined,
    taskList: {
        async deliver(payload, helpers) {
            await post(payload);
            const values = [payload.round, payload.node];
            await helpers.withPgClient((client) => client.query({ ...ack, values }));
        },
    },
    preset: {
        worker: {
            concurrentJobs: 64,
            localQueue: { size: 500 },
            completeJobBatchDelay: 0,
            failJobBatchDelay: 0,
            preparedStatements: true,
        },
    },
});
ready(() => runner.stop());
