/**
 * Plugins of one thread, and the services that they may use: models, pages, documents, web search. Composition root.
 */

import { abortSignalOf } from '../../base/signal.ts'
import type { HoldingQuota } from '../../callers/limits/quota.ts'
import type { AskAs } from '../../exchange/exchange.ts'
import type { WebSearcher } from '../../exchange/plugin.ts'
import { createPlugins } from '../../features/plugins/table.ts'
import type { FusionModels } from '../../features/tools/fusion/models.ts'
import { searchOnce } from '../../features/tools/web/search-once.ts'
import { FORMATS } from '../../formats/table.ts'
import { estimateInput } from '../../pipeline/accounting/estimate.ts'
import { type createGuard, createPolicyAgainst } from '../../pipeline/guard/guard.ts'
import { createAsk, type SharedDeps } from '../../pipeline/inner-call.ts'
import { createRoutableModels } from '../../pipeline/routing/routable.ts'
import { toolEndpointOf } from '../../pipeline/tool-calls/tool-calls.ts'
import { textFormat } from '../../protocol/provider.ts'
import type { CredentialCatalog } from '../../providers/credentials/catalog.ts'
import { createProxyOf, proxiesOf } from '../../providers/upstream/egress.ts'
import { createOcr } from '../../providers/upstream/ocr.ts'
import { createPageFetcher } from '../../providers/upstream/pages/fetch-page.ts'
import { modelFacts, ocrProviderOf, rankingsOf } from './catalog.ts'
import type { Base } from './gateway-parts.ts'

/** Parts that know the caller. */
interface CallerParts {
  readonly credentials: CredentialCatalog
  readonly quota: HoldingQuota
  readonly askAs: AskAs
  readonly webSearcher: WebSearcher
}

export function pluginsOf(
  base: Base & { readonly fusionModels: FusionModels },
  shared: SharedDeps,
  guard: ReturnType<typeof createGuard>,
  callers: CallerParts,
) {
  const { config, catalog } = base
  const { stickiness } = shared
  return createPlugins({
    ...base,
    models: createRoutableModels({ ...shared, ...callers }),
    lastModels: {
      of: (exchange, router) => stickiness.lastModel(exchange, router),
      keep: (exchange, router, modelId, ttlMs) => stickiness.keepModel(exchange, router, modelId, ttlMs),
    },
    rankings: rankingsOf(config),
    draw: base.options.draw ?? Math.random,
    ...fileReading(base),
    webSearcher: callers.webSearcher,
    ask: createAsk({ ...shared, guard }),
    askAs: callers.askAs,
    policyAgainst: createPolicyAgainst({ guard, catalog, ocrProvider: ocrProviderOf(config.files, catalog) }),
    tokensOf: estimateInput,
    modelFacts: modelFacts(catalog),
    filesByLink: format => FORMATS[textFormat({ format })].filesByLink,
    truncates: format => FORMATS[textFormat({ format })].truncates,
  })
}

export function webSearcherOf({ webEngines, log }: Base): WebSearcher {
  return {
    hosts(endpoint, limitsDomains) {
      const endpointTerms = toolEndpointOf(endpoint, FORMATS[textFormat(endpoint)])
      return endpointTerms.hosts('web_search') && (!limitsDomains || endpointTerms.searchesDomains !== false)
    },
    hasEngine: webEngines.byDefault !== null,
    search: (query, parameters, path, { signal, bill, caller, candidates }) =>
      searchOnce(webEngines, log, {
        query,
        parameters,
        path,
        signal: abortSignalOf(signal),
        bill,
        caller,
        isSimulated: candidates.every(({ endpoint }) => endpoint.provider.quirks.includes('simulated')),
      }),
  }
}

/** Access to documents: pages behind links, and OCR. */
function fileReading({ config, catalog, client, clock }: Base) {
  const { files } = config
  const { links, ocr } = files
  const provider = ocrProviderOf(files, catalog)
  return {
    fetchPage: links.enabled
      ? createPageFetcher({ clock, ...links, proxyOf: createProxyOf(proxiesOf(config)) })
      : null,
    ocr: ocr === null || provider === null ? null : createOcr({ client, ...ocr, provider }),
  }
}
