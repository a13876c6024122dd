/** Pages of the simulator, by real HTTP: simulated models read them, and nobody else does. */
import t from 'tap'
import { createSim } from '../../../src/apps/simulator/simulator.ts'
import { systemClock } from '../../../src/base/clock.ts'
import type { Exchange } from '../../../src/exchange/exchange.ts'
import { createWebFetch, type WebFetchDeps } from '../../../src/features/tools/web-fetch.ts'
import { withSimPages } from '../../../src/process/threads/sim-pages.ts'
import { createTransports } from '../../../src/providers/upstream/egress.ts'
import { createPageFetcher } from '../../../src/providers/upstream/pages/fetch-page.ts'

const PAGE = 'https://pages.sim.invalid/some-topic/1'
const nothing = (): void => undefined
const log = { exchange: nothing, listening: nothing, notice: nothing, fault: nothing }
const proxies = { https: null, http: null, exceptions: null }
const DISPLAY = { item: () => undefined, annotate: () => undefined, cite: () => [] }

t.test('a simulated page is there for a simulated model, and for no other', async t => {
  const sim = createSim()
  const { url } = await sim.listen()
  t.teardown(() => sim.close())
  const client = createTransports({ clock: systemClock, log, proxies })
  t.teardown(() => client.close())
  const direct = createPageFetcher({
    clock: systemClock,
    allowHttp: false,
    allowPrivate: false,
    maxBytes: 10_000,
    timeoutMs: 10_000,
    resolve: async () => [],
  })
  const deps = {
    fetchPage: withSimPages(direct, client, url),
    clock: systemClock,
    webEngines: { named: () => null },
    tasks: { run: async () => ({ title: 'A page', text: 'simulated', cut: false }) },
  } as unknown as WebFetchDeps
  const tool = { type: 'gateway:web_fetch', parameters: {} }
  const exchange = { caller: { keyHash: 'key' } } as unknown as Exchange
  const session = await createWebFetch(deps).open([{ tool, path: 'tools[0]' }], exchange, DISPLAY)
  const read = async (isSimulated: boolean): Promise<unknown> => {
    await session.declare({ hosts: () => false, isSimulated })
    const call = { callId: 'c', name: 'web_fetch', arguments: { url: PAGE }, tool }
    const { result } = await session.run(call, () => undefined, new AbortController().signal)
    return JSON.parse(result)
  }
  t.match(await read(true), { status: 'completed', content: 'simulated' })
  t.match(await read(false), { status: 'failed', error: /does not lead to a public address/ })
})
