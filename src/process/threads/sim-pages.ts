/**
 * Simulated pages for the web_fetch tool, on a host name that DNS cannot resolve: requests to it go to the simulator's
 * fixed address, so the rules for private addresses stay unchanged. Composition root.
 */
import { SIM_PAGES_HOST } from '../../apps/simulator/pages.ts'
import { type FetchPage, PageError } from '../../providers/upstream/pages/fetch-page.ts'
import type { Transport } from '../../providers/upstream/transport.ts'
import { wholeReply } from '../../providers/upstream/whole-reply.ts'

const PAGE_TIMEOUT_MS = 5_000
const PAGE_MAX_BYTES = 1024 * 1024

/** Wraps the fetcher so that links of simulated models to simulated pages go to the simulator. */
export function withSimPages(fetchPage: FetchPage, client: Transport, simUrl: string): FetchPage {
  return async (address, terms) => {
    const url = URL.canParse(address) ? new URL(address) : null
    if (url?.host !== SIM_PAGES_HOST || terms.isSimulated !== true) return await fetchPage(address, terms)
    const { status, text } = await wholeReply(
      client,
      {
        method: 'GET',
        url: new URL(`${simUrl}/pages${url.pathname}`),
        headers: { authorization: 'Bearer simulated' },
        body: '',
        headersTimeoutMs: PAGE_TIMEOUT_MS,
        idleTimeoutMs: PAGE_TIMEOUT_MS,
      },
      { maxBytes: PAGE_MAX_BYTES, signal: terms.signal },
    )
    if (status !== 200) throw new PageError('unreachable', `the link answered with status ${status}`, status)
    return { bytes: Buffer.from(text), type: 'text/html', charset: 'utf-8', url: url.href }
  }
}
