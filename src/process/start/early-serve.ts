/** Entry point of a serve thread that loads its code before its settings are known: see early-workers.ts. */
import { enableCompileCache } from 'node:module'
import { workerData } from 'node:worker_threads'
import type { EarlyData } from './early-workers.ts'

const { compileCache } = workerData as EarlyData
if (compileCache !== null) enableCompileCache(compileCache)
// Not earlier: the cache takes modules that are loaded after this call.
await import('../threads/serve.ts')
