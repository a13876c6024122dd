/** One search on behalf of a plugin, with the settings of the web_search tool. Serve threads. */
import { GatewayError } from '../../../base/errors.ts'
import type { Log } from '../../../base/log/log.ts'
import type { Bill } from '../../../exchange/bill.ts'
import type { Citable } from '../../../protocol/parts.ts'
import type { Caller } from '../../../protocol/records.ts'
import { EngineFailure } from './call-engine.ts'
import type { WebEngines } from './engines.ts'
import { citableOf, foundText } from './found-text.ts'
import { engineFor, searchQuery, searchSettings } from './search-settings.ts'

interface PluginSearch {
  readonly query: string
  readonly parameters: Readonly<Record<string, unknown>>
  /** Path of the parameters, for errors. */
  readonly path: string
  readonly signal: AbortSignal
  /** The caller, whose key takes turns with others at the engine. */
  readonly caller: Pick<Caller, 'keyHash'>
  /** True if only simulated models may answer. */
  readonly isSimulated: boolean
  /** The fee is held while the engine is called: a failed search is free, but not one that the signal ended. */
  readonly bill: Pick<Bill, 'holdFee' | 'dropFee' | 'addSearch'>
}

/** Rejects with a GatewayError, or with the reason of the signal. */
export async function searchOnce(
  engines: WebEngines,
  log: Log,
  { query, parameters, path, signal, bill, isSimulated, caller: { keyHash } }: PluginSearch,
): Promise<{ text: string; results: readonly Citable[]; engine: string }> {
  const settings = searchSettings(parameters, path)
  const engine = engineFor(settings, engines.servingModel(isSimulated))
  const engineQuery = searchQuery(settings, engine, {
    query,
    maxResults: Math.min(settings.maxResults, settings.maxTotalResults),
    publishedAfter: null,
    publishedBefore: null,
  })
  const fee = engines.searchFee(engine, engineQuery.query)
  bill.holdFee(fee)
  try {
    const { results, cost } = await engines.search(engine, engineQuery.query, engineQuery.admits, {
      keyHash,
      signal,
    })
    bill.dropFee(fee)
    bill.addSearch(cost)
    const numbers = results.map((_, index) => index + 1)
    return { text: foundText(query, results, numbers), results: citableOf(results), engine: engine.name }
  } catch (thrown) {
    if (!(thrown instanceof EngineFailure)) throw thrown
    bill.dropFee(fee)
    log.fault('tools', 'web search failed', thrown)
    const code = thrown.code === 'engine_timeout' ? 'upstream_timeout' : 'answer_mismatch'
    throw new GatewayError(code, `web: ${thrown.message}`, { cause: thrown })
  }
}
