/** Management operations share the event loop: a key runs two at once in a thread, and others wait for their turn. */
import t from 'tap'
import type { ApiRequest, Operation, Reply } from '../../../src/api/operation.ts'
import { RequestAbort } from '../../../src/base/signal.ts'
import { allOperations } from '../../support/operations.ts'
import { TestClock } from '../../support/test-clock.ts'

type Managing = Extract<Operation, { key: 'management' }>

/** Readings that have begun, by key; each ends when it is told to. */
async function start(t: Parameters<typeof allOperations>[0]) {
  const clock = new TestClock(Date.UTC(2026, 6, 16))
  const reading: { readonly organizationId: string; readonly end: () => void }[] = []
  const ledger = {
    activity: ({ organizationId }: { organizationId: string }) => {
      const { promise, resolve } = Promise.withResolvers<readonly never[]>()
      reading.push({ organizationId, end: () => resolve([]) })
      return promise
    },
  }
  const operations = await allOperations(t, { clock, store: { ledger } as never })
  const operation = operations.find(({ id }) => id === 'getActivity') as Managing
  const ask = (key: string, signal = new RequestAbort()) => {
    const statuses: number[] = []
    const request = {
      query: new URLSearchParams(),
      key: { hash: key, organizationId: key },
      context: { signal },
    }
    const reply = { json: (status: number) => statuses.push(status) }
    const done = Promise.resolve(
      operation.handler(request as unknown as ApiRequest, reply as unknown as Reply),
    )
    return { statuses, done, signal }
  }
  const begun = async () => {
    for (let turns = 0; turns < 5; turns++) await new Promise(resolve => setImmediate(resolve))
    return reading.map(({ organizationId }) => organizationId)
  }
  return { clock, reading, ask, begun }
}

t.test('a key runs two at once, and another key does not wait for its others', async t => {
  const { reading, ask, begun } = await start(t)
  const many = Array.from({ length: 20 }, () => ask('many'))
  t.same(await begun(), ['many', 'many'])
  const other = ask('other')
  t.same(await begun(), ['many', 'many', 'other'])
  for (const each of reading.splice(0)) each.end()
  await other.done
  t.same(other.statuses, [200])
  t.same(await begun(), ['many', 'many'], 'the next two')
  for (;;) {
    if ((await begun()).length === 0) break
    for (const each of reading.splice(0)) each.end()
  }
  await Promise.all(many.map(({ done }) => done))
  t.same([...new Set(many.flatMap(({ statuses }) => statuses))], [200])
})

t.test('one whose client leaves waits no more, and one that waits too long is refused', async t => {
  const { clock, reading, ask, begun } = await start(t)
  const running = [ask('a'), ask('a')]
  const leaving = ask('a')
  const late = ask('a')
  await begun()
  leaving.signal.abort(new Error('left'))
  await t.rejects(leaving.done, { message: 'left' })
  clock.advance(30_000)
  await t.rejects(late.done, { code: 'rate_limit_exceeded', retryAfterSeconds: 1 })
  for (const each of reading) each.end()
  await Promise.all(running.map(({ done }) => done))
})

t.test('no key takes all places, however many operations it has', async t => {
  const { reading, ask, begun } = await start(t)
  const all = ['a', 'b', 'c', 'd', 'e'].flatMap(key => [ask(key), ask(key), ask(key)])
  t.equal((await begun()).length, 8)
  for (let left = all.length; left > 0; ) {
    await begun()
    for (const each of reading.splice(0)) {
      each.end()
      left--
    }
  }
  await Promise.all(all.map(({ done }) => done))
})
