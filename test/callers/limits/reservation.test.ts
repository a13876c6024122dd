/** The reservation of one request over counters in memory: what it takes while it runs, and what its end gives back. */
import t from 'tap'
import type { CounterEntry, Counters, ReserveResult } from '../../../src/callers/limits/counters.ts'
import { LocalCounters } from '../../../src/callers/limits/local-counters.ts'
import { CounterReservation } from '../../../src/callers/limits/reservation.ts'
import { TestClock } from '../../support/test-clock.ts'

const PICOS = 1_000
const LIMIT = { kind: 'credits' } as const
const ENTRY: CounterEntry = {
  id: 'credits/o',
  amount: 10,
  ceiling: 100,
  origin: null,
  endsMs: Number.POSITIVE_INFINITY,
}

/** A reservation of ten; `ask` says how the counters are asked from then on. */
function reserve(
  t: { teardown: (end: () => void) => void },
  ask: (taking: ReserveResult) => ReserveResult | Promise<ReserveResult>,
) {
  const local = new LocalCounters({ clock: new TestClock(), nodes: 1, spending: { sum: async () => 0 } })
  t.teardown(() => local.close())
  const now = (entries: readonly CounterEntry[]): ReserveResult => {
    const taking = local.reserve(entries)
    if (taking instanceof Promise) throw new Error('a counter without an origin is never loaded')
    return taking
  }
  const counters: Counters = {
    reserve: entries => ask(now(entries)),
    settle: (entries, used) => local.settle(entries, used),
  }
  const entries = [ENTRY]
  const { rooms } = now(entries)
  const reservation = new CounterReservation(counters, entries, [LIMIT], rooms)
  const state = () => ({
    reserved: local.reserved(ENTRY.id),
    total: now([{ ...ENTRY, amount: 0 }]).rooms[0]?.total,
  })
  return { reservation, state }
}

t.test('what a request takes while it runs is given back with its end', t => {
  const { reservation, state } = reserve(t, taking => taking)
  t.equal(reservation.cover(10 * PICOS, false), true)
  t.same(state(), { reserved: 10, total: 10 }, 'it is covered already')
  t.equal(reservation.cover(30 * PICOS, false), true)
  t.equal(reservation.cover(60 * PICOS, false), true)
  t.same(state(), { reserved: 60, total: 60 })
  t.equal(reservation.cover(101 * PICOS, false), false)
  t.same(state(), { reserved: 60, total: 60 }, 'what does not fit is not taken')
  reservation.settle({ cost: 7 * PICOS, isByok: false, tokens: 1 })
  t.same(state(), { reserved: 0, total: 7 })
  t.equal(reservation.cover(1 * PICOS, false), false, 'nothing more is taken')
  reservation.settle({ cost: 90 * PICOS, isByok: false, tokens: 1 })
  t.same(state(), { reserved: 0, total: 7 }, 'it ends once')
  t.end()
})

t.test('what the counters grant after the end is given back at once', async t => {
  const late = Promise.withResolvers<void>()
  const { reservation, state } = reserve(t, taking => late.promise.then(() => taking))
  const covered = reservation.cover(60 * PICOS, false)
  t.same(state(), { reserved: 60, total: 60 })
  reservation.settle({ cost: 7 * PICOS, isByok: false, tokens: 1 })
  t.same(state(), { reserved: 50, total: 57 }, 'the answer is on its way')
  late.resolve()
  t.equal(await covered, false)
  t.same(state(), { reserved: 0, total: 7 })
})

t.test('counters that fail cover nothing', async t => {
  const { reservation } = reserve(t, () => Promise.reject(new Error('away')))
  t.equal(await reservation.cover(60 * PICOS, false), false)
  t.equal(await reservation.cover(60 * PICOS, true), true, 'credits do not count own credentials')
})

t.test('what is not spent yet is given back while others run, and taken again', t => {
  const { reservation, state } = reserve(t, taking => taking)
  t.equal(reservation.cover(30 * PICOS, false), true)
  reservation.release({ cost: 4 * PICOS, isByok: false, tokens: 1 })
  t.same(state(), { reserved: 0, total: 4 }, 'what was spent counts at once')
  t.equal(reservation.cover(20 * PICOS, false), true)
  t.same(state(), { reserved: 16, total: 20 }, 'for all of the request')
  reservation.release({ cost: 4 * PICOS, isByok: false, tokens: 1 })
  t.same(state(), { reserved: 0, total: 4 }, 'nothing counts twice')
  t.equal(reservation.cover(101 * PICOS, false), false)
  t.equal(reservation.cover(50 * PICOS, false), true)
  reservation.settle({ cost: 9 * PICOS, isByok: false, tokens: 1 })
  t.same(state(), { reserved: 0, total: 9 })
  reservation.release({ cost: 90 * PICOS, isByok: false, tokens: 1 })
  t.same(state(), { reserved: 0, total: 9 }, 'it is over')
  t.end()
})

t.test('fees count where a BYOK credential does not', t => {
  const { reservation, state } = reserve(t, taking => taking)
  reservation.settle({ cost: 50 * PICOS, isByok: true, fees: 7 * PICOS, tokens: 1 })
  t.same(state(), { reserved: 0, total: 7 })
  t.end()
})
