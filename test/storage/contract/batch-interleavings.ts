/** The contract of batches under any order of verbs: a model of the lines says what each has to do. */
import { isDeepStrictEqual } from 'node:util'
import fc from 'fast-check'
import type { Test } from 'tap'
import { addUsage, type BatchUsage, NO_USAGE } from '../../../src/protocol/management/batches.ts'
import type { LineOutcome } from '../../../src/storage/batches.ts'
import type { BatchStore } from '../../../src/storage/service-jobs.ts'
import { search } from '../../support/property.ts'
import { acceptRunning, allResults, at, LEASE_MS, NOW_MS, present, someUsageOf } from '../batches.ts'
import type { Opened } from '../contract.ts'

const LINES = 6
const OWNERS = ['one', 'two'] as const
type Owner = (typeof OWNERS)[number]

/** A line that an owner names: mostly one that it has; under its fence, or an older or a newer one. */
interface Named {
  readonly pick: number
  readonly shift: -1 | 0 | 1
  readonly amount: number
  readonly outcome: LineOutcome
}

type Verb =
  | { readonly verb: 'claim'; readonly owner: Owner; readonly limit: number }
  | {
      readonly verb: 'finish' | 'giveBack' | 'renew'
      readonly owner: Owner
      readonly lines: readonly Named[]
    }
  | { readonly verb: 'wait'; readonly ms: number }
  | { readonly verb: 'cancel' | 'end' | 'prune' }

const owner = fc.constantFrom(...OWNERS)
const named: fc.Arbitrary<Named> = fc.record({
  pick: fc.nat(),
  // Mostly the right one.
  shift: fc.constantFrom<Named['shift']>(0, 0, 0, 0, -1, 1),
  amount: fc.nat(9),
  outcome: fc.constantFrom('completed', 'failed'),
})
const verbs: fc.Arbitrary<readonly Verb[]> = fc.array(
  fc.oneof(
    {
      weight: 6,
      arbitrary: fc.record({ verb: fc.constant('claim'), owner, limit: fc.integer({ min: 1, max: 4 }) }),
    },
    {
      weight: 6,
      arbitrary: fc.record({
        verb: fc.constantFrom('finish', 'finish', 'giveBack', 'renew'),
        owner,
        lines: fc.array(named, { minLength: 1, maxLength: 6, size: 'max' }),
      }),
    },
    { weight: 2, arbitrary: fc.record({ verb: fc.constant('wait'), ms: fc.nat(LEASE_MS) }) },
    { weight: 1, arbitrary: fc.record({ verb: fc.constantFrom('cancel', 'end', 'prune', 'prune') }) },
  ) as fc.Arbitrary<Verb>,
  { minLength: 10, maxLength: 40, size: 'max' },
)

interface ModelLine {
  readyMs: number
  owner: Owner | null
  fence: number
  tries: number
  result: { readonly text: string; readonly outcome: LineOutcome; readonly usage: BatchUsage } | null
}

/** Lines of one batch as they have to be. */
class Model {
  readonly lines: ModelLine[] = Array.from({ length: LINES }, () => ({
    readyMs: 0,
    owner: null,
    fence: 0,
    tries: 0,
    result: null,
  }))
  /** Lines that verbs had an effect on: without any, nothing was tried. */
  changed = 0
  nowMs = NOW_MS
  status: 'in_progress' | 'cancelling' | 'cancelled' = 'in_progress'
  readonly #store: BatchStore
  readonly #id: string

  constructor(store: BatchStore, id: string) {
    this.#store = store
    this.#id = id
  }

  async run(verb: Verb): Promise<void> {
    switch (verb.verb) {
      case 'claim':
        return await this.#claim(verb.owner, verb.limit)
      case 'finish':
      case 'giveBack':
      case 'renew':
        return await this.#change(verb.verb, verb.owner, verb.lines)
      case 'wait':
        this.nowMs += verb.ms
        return
      case 'cancel':
        return await this.#move('in_progress', 'cancelling')
      case 'end':
        return await this.#move('cancelling', 'cancelled')
      case 'prune':
        await this.#store.work.prune(at(0), this.nowMs, 3)
        return
    }
  }

  /** Holds the store against the model. */
  async check(): Promise<void> {
    const done = this.lines.flatMap(({ result }, number) => (result === null ? [] : [{ ...result, number }]))
    const results = await allResults(this.#store, this.#id, 4)
    equal(
      results,
      done.map(({ text, outcome, number }) => ({
        number,
        customId: `line-${number}`,
        outcome,
        result: text,
      })),
    )
    const record = present(await this.#store.find('org_1', 'ws_1', this.#id))
    equal(
      [record.status, record.completed, record.failed, record.usage],
      [
        this.status,
        done.filter(({ outcome }) => outcome === 'completed').length,
        done.filter(({ outcome }) => outcome === 'failed').length,
        done.reduce((sum, { usage }) => addUsage(sum, usage), NO_USAGE),
      ],
    )
    const claimed = this.lines.filter(line => line.owner !== null).length
    equal(await this.#store.work.counts(this.#id), {
      unchecked: 0,
      waiting: LINES - claimed - done.length,
      claimed,
      finished: done.length,
    })
    const waiting = this.lines.filter(line => line.owner === null && line.result === null)
    equal(
      await this.#store.work.nextLineAt(this.#id),
      waiting.length === 0 ? null : Math.min(...waiting.map(({ readyMs }) => readyMs)),
    )
  }

  async #claim(owner: Owner, limit: number): Promise<void> {
    const leaseUntilMs = this.nowMs + LEASE_MS
    const claimed = await this.#store.work.claimLines(this.#id, owner, {
      limit,
      nowMs: this.nowMs,
      leaseUntilMs,
    })
    const ready = this.lines
      .map((line, number) => ({ line, number }))
      .filter(({ line }) => line.result === null && line.readyMs <= this.nowMs)
      .sort((one, other) => one.line.readyMs - other.line.readyMs || one.number - other.number)
      .slice(0, this.status === 'in_progress' ? limit : 0)
    for (const { line } of ready) {
      line.owner = owner
      line.fence++
      line.readyMs = leaseUntilMs
    }
    equal(
      claimed,
      ready.map(({ line: { fence, tries }, number }) => ({
        batchId: this.#id,
        number,
        customId: `line-${number}`,
        body: `{"input":"${number}"}`,
        fence,
        tries,
      })),
    )
  }

  async #change(verb: 'finish' | 'giveBack' | 'renew', owner: Owner, named: readonly Named[]): Promise<void> {
    const all = [...this.lines.keys(), LINES]
    const held = all.filter(number => this.lines[number]?.owner === owner)
    const choices = [...held, ...held, ...held, ...all]
    const given = named.map(({ pick, shift, amount, outcome }) => {
      const number = choices[pick % choices.length] ?? 0
      return {
        batchId: this.#id,
        number,
        fence: (this.lines[number]?.fence ?? 0) + shift,
        outcome,
        result: JSON.stringify(`${owner} ${amount} \u0000`),
        usage:
          amount === 0 ? NO_USAGE : someUsageOf(amount, { serviceTier: amount % 2 ? 'flex' : 'standard' }),
        tries: amount,
        notBeforeMs: this.nowMs + amount * 1000,
      }
    })
    const effective: (typeof given)[number][] = []
    const seen = new Set<number>()
    for (const line of given) {
      const stored = this.lines[line.number]
      // Of two for one line the first counts.
      const isFirst = !seen.has(line.number)
      seen.add(line.number)
      if (isFirst && stored?.owner === owner && stored.fence === line.fence) effective.push(line)
    }
    const leaseUntilMs = this.nowMs + 2 * LEASE_MS
    const expected = verb === 'finish' && this.status === 'cancelled' ? [] : effective
    if (verb === 'finish') equal(await this.#store.work.finish(owner, given), expected)
    else if (verb === 'renew')
      equal(await this.#store.work.renew(owner, given, leaseUntilMs), inOrder(expected))
    else await this.#store.work.giveBack(owner, given)
    for (const { number, outcome, result, usage, tries, notBeforeMs } of expected) {
      const line = this.lines[number]
      if (line === undefined) continue
      this.changed++
      if (verb === 'finish') Object.assign(line, { owner: null, result: { text: result, outcome, usage } })
      else if (verb === 'renew') line.readyMs = leaseUntilMs
      else Object.assign(line, { owner: null, tries, readyMs: notBeforeMs })
    }
  }

  async #move(from: 'in_progress' | 'cancelling', to: 'cancelling' | 'cancelled'): Promise<void> {
    const moved = await this.#store.work.move(this.#id, [from], to, at(5))
    equal(moved?.status ?? null, this.status === from ? to : null)
    if (this.status === from) this.status = to
  }
}

function inOrder<Line extends { readonly number: number }>(lines: readonly Line[]): readonly Line[] {
  return [...lines].sort((one, other) => one.number - other.number)
}

/** @throws if they differ; the text says how. */
function equal(found: unknown, expected: unknown): void {
  if (isDeepStrictEqual(found, expected)) return
  throw new Error(`found ${JSON.stringify(found)}, expected ${JSON.stringify(expected)}`)
}

export async function batchInterleavingsContract(t: Test, opened: Opened): Promise<void> {
  await t.test('any order of claims, results, returns and delays has the same results and sums', async t => {
    const { batches } = await opened(t)
    let [changed, finished] = [0, 0]
    await fc.assert(
      fc.asyncProperty(verbs, async order => {
        const { id } = await acceptRunning(batches, { lines: LINES })
        const model = new Model(batches, id)
        for (const verb of order) {
          await model.run(verb)
          await model.check()
        }
        changed += model.changed
        finished += model.lines.filter(({ result }) => result !== null).length
        await batches.work.move(id, ['in_progress', 'cancelling'], 'cancelled', at(6))
        await batches.remove('org_1', 'ws_1', id)
      }),
      search(25),
    )
    t.ok(finished > 20 && changed > finished, `${changed} changes, ${finished} results`)
  })
}
