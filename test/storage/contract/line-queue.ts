/** The contract of the lines of batches: claims, leases, fences and results. */
import type { Test } from 'tap'
import { addUsage, NO_USAGE } from '../../../src/protocol/management/batches.ts'
import type { LineResult } from '../../../src/storage/batches.ts'
import {
  accept,
  acceptRunning,
  allResults,
  at,
  claim,
  LEASE_MS,
  NOW_MS,
  present,
  someLine,
  someLines,
  someResult,
  someUsageOf,
} from '../batches.ts'
import type { Opened } from '../contract.ts'
import { ODD_TEXT } from '../records.ts'

export async function batchLinesContract(t: Test, opened: Opened): Promise<void> {
  const numbersOf = (lines: readonly { readonly number: number }[]) => lines.map(({ number }) => number)

  await t.test('lines are claimed once each, in their order and with their bodies', async t => {
    const { batches } = await opened(t)
    const { work } = batches
    const { id } = await acceptRunning(batches, { lines: 5 })
    await acceptRunning(batches, { lines: 5 })
    t.equal(await work.nextLineAt(id), 0)
    const first = await claim(batches, id, 'one', 2)
    t.same(
      first.map(({ fence: _, ...line }) => line),
      someLines(2).map(line => ({ ...line, batchId: id, tries: 0 })),
    )
    t.same(await work.counts(id), { unchecked: 0, waiting: 3, claimed: 2, finished: 0 })
    t.same(numbersOf(await claim(batches, id, 'two', 10)), [2, 3, 4])
    t.same(await claim(batches, id, 'one', 10), [], 'not even by their owner again')
    t.same(await work.counts(id), { unchecked: 0, waiting: 0, claimed: 5, finished: 0 })
    t.equal(await work.nextLineAt(id), null)
    t.equal(await work.nextLineAt('batch_unknown'), null)
  })

  await t.test('a claim ends before its bodies have too many bytes, but has one line', async t => {
    const { batches } = await opened(t)
    const lines = [10, 10, 30, 10].map((length, number) => someLine(number, { body: 'é'.repeat(length / 2) }))
    const { id } = await acceptRunning(batches, { lines })
    const terms = { limit: 3, nowMs: NOW_MS, leaseUntilMs: NOW_MS + 1 }
    t.same(numbersOf(await batches.work.claimLines(id, 'one', { ...terms, maxBytes: 20 })), [0, 1])
    t.same(numbersOf(await batches.work.claimLines(id, 'one', { ...terms, maxBytes: 20 })), [2])
    t.same(numbersOf(await batches.work.claimLines(id, 'one', { ...terms, maxBytes: 20 })), [3])
  })

  await t.test('lines are claimed while the batch is in progress only', async t => {
    const { batches } = await opened(t)
    const { id } = await accept(batches)
    t.same(await claim(batches, id, 'one', 10), [])
    await batches.work.move(id, ['validating'], 'in_progress', at(1))
    t.equal((await claim(batches, id, 'one', 1)).length, 1)
    await batches.work.move(id, ['in_progress'], 'cancelling', at(1))
    t.same(await claim(batches, id, 'one', 10), [])
    t.same(await claim(batches, 'batch_unknown', 'one', 10), [])
  })

  await t.test('owners who claim at once have different lines', async t => {
    const { batches } = await opened(t)
    const { id } = await acceptRunning(batches, { lines: 200 })
    const claims = await Promise.all(
      Array.from({ length: 40 }, (_, at) => claim(batches, id, `owner ${at % 4}`, 5)),
    )
    const seen = claims.flatMap(numbersOf)
    t.equal(new Set(seen).size, seen.length)
    // Claims may overlook lines that others hold for the moment, and find them later.
    seen.push(...numbersOf(await claim(batches, id, 'last', 200)))
    t.same(
      seen.sort((a, b) => a - b),
      numbersOf(someLines(200)),
    )
    for (const lines of claims)
      t.same(
        numbersOf(lines),
        numbersOf(lines).sort((a, b) => a - b),
      )
  })

  await t.test('a line is claimed again when its lease is over, under a greater fence', async t => {
    const { batches } = await opened(t)
    const { work } = batches
    const { id } = await acceptRunning(batches, { lines: 3 })
    const first = await claim(batches, id, 'one', 2)
    t.same(numbersOf(await claim(batches, id, 'two', 10, NOW_MS + LEASE_MS - 1)), [2])
    const again = await claim(batches, id, 'two', 10, NOW_MS + LEASE_MS)
    t.same(numbersOf(again), [0, 1])
    for (const [at, line] of again.entries()) t.ok(line.fence > (first[at]?.fence ?? Infinity))
    t.same(
      await work.finish(
        'one',
        first.map(line => someResult(line)),
      ),
      [],
      'the first owner is too late',
    )
    t.same(await work.renew('one', first, NOW_MS + 9 * LEASE_MS), [])
    await work.giveBack(
      'one',
      first.map(line => ({ ...line, tries: 3, notBeforeMs: 0 })),
    )
    t.same(await work.counts(id), { unchecked: 0, waiting: 0, claimed: 3, finished: 0 })
    const results = again.map(line => someResult(line))
    t.same(await work.finish('two', results), results)
    t.same(
      (await allResults(batches, id)).map(({ result }) => result),
      results.map(({ result }) => result),
    )
  })

  await t.test(
    'a lease is renewed for the lines that are named, as long as nobody else has them',
    async t => {
      const { batches } = await opened(t)
      const { work } = batches
      const { id } = await acceptRunning(batches, { lines: 4 })
      const other = await acceptRunning(batches, { lines: 1 })
      const lines = await claim(batches, id, 'one', 4)
      const [stranger] = await claim(batches, other.id, 'two', 1)
      const held = [...lines.slice(0, 2), ...(stranger === undefined ? [] : [stranger])]
      t.same(await work.renew('one', held, NOW_MS + 2 * LEASE_MS), lines.slice(0, 2))
      t.same(numbersOf(await claim(batches, id, 'two', 9, NOW_MS + 2 * LEASE_MS - 1)), [2, 3])
      t.same(numbersOf(await claim(batches, other.id, 'three', 9, NOW_MS + 2 * LEASE_MS)), [0])
      t.same(numbersOf(await claim(batches, id, 'two', 9, NOW_MS + 2 * LEASE_MS)), [0, 1])
      t.same(await work.renew('one', [], NOW_MS), [])
    },
  )

  await t.test('lines that come back wait for their time, behind those that nobody had', async t => {
    const { batches } = await opened(t)
    const { work } = batches
    const { id } = await acceptRunning(batches, { lines: 5 })
    const [zero, one, two] = await claim(batches, id, 'one', 3)
    const back = [zero, one, two].map((line, at) => ({
      ...present(line ?? null),
      tries: at + 1,
      notBeforeMs: NOW_MS + (at === 0 ? 200 : 100),
    }))
    await work.giveBack('one', [...back, ...back])
    t.same(await work.counts(id), { unchecked: 0, waiting: 5, claimed: 0, finished: 0 })
    t.equal(await work.nextLineAt(id), 0)
    t.same(numbersOf(await claim(batches, id, 'two', 1, NOW_MS + 500)), [3])
    t.same(numbersOf(await claim(batches, id, 'two', 10, NOW_MS + 99)), [4])
    t.equal(await work.nextLineAt(id), NOW_MS + 100)
    const again = await claim(batches, id, 'two', 10, NOW_MS + 200)
    t.same(
      again.map(({ number, tries }) => [number, tries]),
      [
        [1, 2],
        [2, 3],
        [0, 1],
      ],
    )
    t.same(
      await work.finish(
        'one',
        back.map(line => someResult(line)),
      ),
      [],
      'given back is given up',
    )
    await work.giveBack('two', [{ ...present(again[0] ?? null), tries: 2, notBeforeMs: 0 }])
    t.equal(await work.nextLineAt(id), 0)
  })

  await t.test('results are stored once, with counts and sums', async t => {
    const { batches } = await opened(t)
    const { work } = batches
    const { id } = await acceptRunning(batches, { lines: 6 })
    const other = await acceptRunning(batches, { lines: 1 })
    const lines = await claim(batches, id, 'one', 6)
    const [far] = await claim(batches, other.id, 'one', 1)
    const resultOf = (number: number) => someResult(present(lines[number] ?? null))
    const [first, second, third, fourth, fifth] = [0, 1, 2, 3, 4].map(resultOf) as [
      LineResult,
      LineResult,
      LineResult,
      LineResult,
      LineResult,
    ]
    const failed = { ...second, outcome: 'failed', usage: NO_USAGE } as const
    const foreign = someResult(present(far ?? null), { result: JSON.stringify(`\u0000\ud800${ODD_TEXT}`) })
    const given = [first, failed, { ...first, result: 'twice' }, foreign, { ...third, fence: 99 }]
    t.same(await work.finish('one', given), [first, failed, foreign])
    t.same(await work.finish('one', [first, failed]), [], 'a result is final')
    t.same(await work.finish('two', [fourth]), [], 'of its owner only')
    t.same(await work.finish('one', [{ ...fourth, batchId: 'batch_unknown' }]), [])
    t.same(await work.finish('one', [{ ...fourth, number: 77 }]), [])
    t.same(await work.finish('one', []), [])
    t.match(await batches.find('org_1', 'ws_1', id), { completed: 1, failed: 1, usage: first.usage })
    t.match(await batches.find('org_1', 'ws_1', other.id), { completed: 1, failed: 0, usage: foreign.usage })
    t.same(await work.counts(id), { unchecked: 0, waiting: 0, claimed: 4, finished: 2 })
    const tier = {
      ...fifth,
      usage: someUsageOf(9, { serviceTier: 'flex', isByok: true, cost: '9'.repeat(40) }),
    }
    t.same(await work.finish('one', [third, tier]), [third, tier])
    const sum = [first, third, tier].reduce((usage, result) => addUsage(usage, result.usage), NO_USAGE)
    t.match(await batches.find('org_1', 'ws_1', id), { completed: 3, failed: 1 })
    t.same((await batches.find('org_1', 'ws_1', id))?.usage, sum)
    t.equal(sum.serviceTier, null)
    t.same((await allResults(batches, other.id))[0]?.result, foreign.result)
    t.same(await claim(batches, id, 'two', 10, NOW_MS + 9 * LEASE_MS).then(numbersOf), [3, 5])
  })

  await t.test('results that come while a batch is cancelled count, and later ones are dropped', async t => {
    const { batches } = await opened(t)
    const { id } = await acceptRunning(batches, { lines: 2 })
    const [one, two] = (await claim(batches, id, 'one', 2)).map(line => someResult(line))
    await batches.work.move(id, ['in_progress'], 'cancelling', at(2))
    t.same(await batches.work.finish('one', [present(one ?? null)]), [one])
    const cancelled = await batches.work.move(id, ['cancelling'], 'cancelled', at(3))
    t.same(await batches.work.finish('one', [present(two ?? null)]), [])
    t.match(cancelled, { completed: 1, failed: 0 })
    t.same(await batches.find('org_1', 'ws_1', id), cancelled)
    t.equal((await allResults(batches, id)).length, 1)
  })

  await t.test('many results in one transaction, some of megabytes', async t => {
    const { batches } = await opened(t)
    const { id } = await acceptRunning(batches, { lines: 700 })
    const lines = await claim(batches, id, 'one', 700)
    const results = lines.map(line =>
      someResult(line, line.number % 100 === 0 ? { result: JSON.stringify('é'.repeat(1_500_000)) } : {}),
    )
    t.equal((await batches.work.finish('one', results)).length, 700)
    const read = await allResults(batches, id, 50)
    t.ok(read.every(({ result }, at) => result === results[at]?.result))
    t.match(await batches.find('org_1', 'ws_1', id), { completed: 700, failed: 0 })
  })
}
