/** Requests wait a while for money that running ones have reserved. */
import t from 'tap'
import { GatewayError } from '../../../src/base/errors.ts'
import { RequestAbort } from '../../../src/base/signal.ts'
import { reservedError } from '../../../src/callers/limits/limit-errors.ts'
import { UNLIMITED_RESERVATION } from '../../../src/callers/limits/quota.ts'
import { MAX_WAITING_PER_KEY, ReservationQueue } from '../../../src/callers/limits/reservation-wait.ts'
import type { Caller } from '../../../src/protocol/records.ts'
import { TestClock } from '../../support/test-clock.ts'

const BUSY = reservedError({ kind: 'credits' })
const KEY: Caller = { keyHash: 'a', organizationId: 'o', workspaceId: null, memberId: null, limit: null }
const turn = () => new Promise(resolve => setImmediate(resolve))

/** Moves the clock in steps, with time for what each step sets off. */
async function advance(clock: TestClock, ms: number): Promise<void> {
  for (let left = ms; left > 0; left -= 200) {
    clock.advance(200)
    await turn()
  }
}

t.test('it asks again until there is room', async t => {
  const clock = new TestClock()
  const wait = new ReservationQueue(clock)
  let asked = 0
  const reserved = wait.reserve(
    () => {
      if (++asked < 3) throw BUSY
      return Promise.resolve(UNLIMITED_RESERVATION)
    },
    KEY,
    new RequestAbort(),
    BUSY,
  )
  t.equal(wait.waiting, 1)
  await advance(clock, 600)
  t.equal(await reserved, UNLIMITED_RESERVATION)
  t.equal(asked, 3)
  t.equal(wait.waiting, 0)
  t.equal(clock.armed, 0)
})

t.test('it is refused after five seconds, or at once for another reason', async t => {
  const clock = new TestClock()
  const wait = new ReservationQueue(clock)
  const busy = wait.reserve(() => Promise.reject(BUSY), KEY, new RequestAbort(), BUSY)
  const refused = t.rejects(busy, BUSY)
  await advance(clock, 4_800)
  t.equal(wait.waiting, 1)
  await advance(clock, 200)
  await refused
  const spent = new GatewayError('payment_required', 'spent')
  const ask = (): never => {
    throw spent
  }
  const other = t.rejects(wait.reserve(ask, KEY, new RequestAbort(), BUSY), spent)
  await advance(clock, 200)
  await other
  t.equal(wait.waiting, 0)
})

t.test('so many requests of a key wait, and one that leaves frees its place', async t => {
  const clock = new TestClock()
  const wait = new ReservationQueue(clock)
  const busy = () => Promise.reject(BUSY)
  const signals = Array.from({ length: MAX_WAITING_PER_KEY }, () => new RequestAbort())
  const all = signals.map(signal => wait.reserve(busy, KEY, signal, BUSY).catch((thrown: unknown) => thrown))
  await t.rejects(wait.reserve(busy, KEY, new RequestAbort(), BUSY), BUSY, 'without a wait')
  const other = new RequestAbort()
  const another = wait.reserve(busy, { ...KEY, keyHash: 'b' }, other, BUSY).catch((thrown: unknown) => thrown)
  t.equal(wait.waiting, MAX_WAITING_PER_KEY + 1, 'another key has places of its own')
  const gone = new GatewayError('client_closed', 'gone')
  signals[0]?.abort(gone)
  t.equal(await all[0], gone)
  t.equal(wait.waiting, MAX_WAITING_PER_KEY)
  const next = new RequestAbort()
  const again = wait.reserve(busy, KEY, next, BUSY).catch((thrown: unknown) => thrown)
  t.equal(wait.waiting, MAX_WAITING_PER_KEY + 1)
  for (const signal of [...signals, other, next]) signal.abort(gone)
  t.same(new Set(await Promise.all([...all, another, again])), new Set([gone]))
  t.equal(wait.waiting, 0)
  t.equal(clock.armed, 0)
  const many = Array.from({ length: 80 }, () => new RequestAbort())
  const asked = many.map((signal, at) =>
    wait.reserve(busy, { ...KEY, keyHash: `k${at}` }, signal, BUSY).catch((thrown: unknown) => thrown),
  )
  t.equal(wait.waiting, 64, 'and an organization has so many, whatever its keys are')
  for (const signal of many) signal.abort(gone)
  await Promise.all(asked)
  const left = new RequestAbort()
  left.abort(gone)
  await t.rejects(wait.reserve(busy, KEY, left, BUSY), gone)
})
