/** Lists of models over real sockets, from providers that mean no good. */
import { createServer, type RequestListener } from 'node:http'
import t, { type Test } from 'tap'
import { systemClock } from '../../../src/base/clock.ts'
import type { Provider } from '../../../src/protocol/provider.ts'
import { createTransports } from '../../../src/providers/upstream/egress.ts'
import { listModels } from '../../../src/providers/upstream/list-models.ts'
import { listening } from '../../support/listening.ts'
import { scriptedEndpoint } from '../../support/scripted-attempt.ts'
import { TestClock } from '../../support/test-clock.ts'

const nothing = (): void => undefined
const log = { exchange: nothing, listening: nothing, notice: nothing, fault: nothing }

async function setup(t: Test, answer: RequestListener) {
  const server = createServer(answer)
  const { url: baseUrl } = await listening(server, t)
  const proxies = { https: null, http: null, exceptions: null }
  const client = createTransports({ clock: systemClock, log, proxies })
  t.teardown(() => client.close())
  const provider: Provider = { ...scriptedEndpoint('anthropic-messages').provider, baseUrl }
  return { client, provider }
}

t.test('pages without an end are taken together, up to a bound', async t => {
  let pages = 0
  const { client, provider } = await setup(t, (_request, response) => {
    pages++
    const data = Array.from({ length: 100 }, (_, at) => ({
      id: `m-${pages}-${at}`,
      display_name: 'x'.repeat(90),
    }))
    response.end(JSON.stringify({ data, has_more: true, last_id: `m-${pages}` }))
  })
  const { signal } = new AbortController()
  const { models, leftOut } = await listModels(client, provider, { clock: systemClock, signal })
  t.equal(leftOut, 0)
  t.equal(models.length, 2_000, 'twenty pages')
  pages = 0
  const bounded = listModels(client, provider, { clock: systemClock, signal, maxBytes: 40_000 })
  await t.rejects(bounded, { code: 'reply_too_large' })
  t.ok(pages <= 4, `${pages} pages were asked for`)
})

t.test('of a list with more than 10,000 models the first are taken, and the others counted', async t => {
  let pages = 0
  let [first, others] = [200_000, 0]
  const { client, provider } = await setup(t, (_request, response) => {
    pages++
    const data = Array.from({ length: pages === 1 ? first : others }, (_, at) => ({ id: `m-${pages}-${at}` }))
    response.end(JSON.stringify({ data, has_more: true, last_id: `m-${pages}` }))
  })
  const terms = { clock: systemClock, signal: new AbortController().signal }
  const one = await listModels(client, provider, terms)
  t.same([one.models.length, one.models.at(-1)?.id, one.leftOut, pages], [10_000, 'm-1-9999', 190_000, 1])
  ;[first, others, pages] = [6_000, 5_000, 0]
  const two = await listModels(client, provider, terms)
  t.same([two.models.length, two.leftOut, pages], [10_000, 1_000, 2])
})

t.test('a list that drips is given up', async t => {
  const clock = new TestClock()
  let dripping: NodeJS.Timeout | undefined
  const began = Promise.withResolvers<void>()
  const { client, provider } = await setup(t, (_request, response) => {
    response.write('{"data":[')
    dripping = setInterval(() => response.write(' '), 5)
    began.resolve()
  })
  t.teardown(() => clearInterval(dripping))
  const list = listModels(client, provider, { clock, signal: new AbortController().signal })
  list.catch(nothing)
  await began.promise
  clock.advance(60_000)
  await t.rejects(list, { code: 'upstream_timeout' })
})
