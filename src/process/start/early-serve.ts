/** Entry point of a serve thread that loads its code before its settings are known: see early-workers.ts. */
import { enableCompileCache } from 'node:module'
import { workerData } from 'node:worker_threads'
import type { EarlyData } from './early-workers.ts'

const { compileCache } = workerData as EarlyData
if (compileCache !== null) enableCompileCache(compileCache)
// Not before: the cache takes what is loaded after it.
await import('../threads/serve.ts')
