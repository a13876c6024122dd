/** Settings of batches. Pure. */
import { type Static, Type } from '@sinclair/typebox'
import { type Frozen, group, setting } from '../base/settings/setting.ts'

export const batchesSettings = group({
  maxBytes: setting(
    Type.Integer({ minimum: 1_024, maximum: 1_073_741_824 }),
    "maximum size of a `POST /batches` body, in bytes; a larger one is rejected with 413 before it is stored. Until their requests are in the database, bodies are kept on this machine's disk, as unnamed files in `uploads` next to the spool: at most eight times this size per serve thread, and a quarter of that per API key",
    { default: 209_715_200 },
  ),
  maxStored: setting(
    Type.Integer({ minimum: 1, maximum: 1_000_000 }),
    'batches that the database keeps per workspace, in all states; further ones are rejected with 409. They are kept until they are deleted, or for `retention.batchDays` after their end',
    { default: 10_000 },
  ),
  maxStoredRequests: setting(
    Type.Integer({ minimum: 1, maximum: 1_000_000_000 }),
    'total number of requests in these batches; further ones are rejected with 409. Each request takes 300 to 500 bytes in addition to its text',
    { default: 2_000_000 },
  ),
  maxStoredBytes: setting(
    Type.Integer({ minimum: 1_024, maximum: Number.MAX_SAFE_INTEGER }),
    'total bytes of the results and the unfinished requests of these batches; a batch that does not fit is rejected with 409. Results of accepted batches are always stored',
    { default: 10_737_418_240 },
  ),
  priceFactor: setting(
    Type.String({ pattern: '^\\d(?:\\.\\d{1,6})?$', expected: 'a decimal number below 10, as a string' }),
    'share of the catalogue price that is charged for requests in [batches](batches.md), e.g. `"0.5"` for half',
    { default: '1' },
  ),
  concurrency: setting(
    Type.Integer({ minimum: 1, maximum: 10_000 }),
    'batch requests that one instance runs at once, across all batches. It starts with 16 per provider, adapts to what the provider accepts, and drops to a sixteenth while live requests suffer. With the default, 50,000 requests of one minute each take less than seven hours',
    { default: 128 },
  ),
})

export interface BatchSettings extends Frozen<Static<typeof batchesSettings>> {}
