/**
 * Where rules are evaluated: here when that is cheap whatever the text says, otherwise in the task pool within a
 * deadline. Serve and batch threads.
 */
import { estimateMicros, whereToScan } from '../guardrails/cost.ts'
import type { Finding } from '../guardrails/rules.ts'
import type { Progress, Scanner } from '../guardrails/scanner.ts'
import type { Seen, Window } from '../guardrails/window.ts'
import type { GatewayTasks } from '../tasks/pool.ts'
import type { GuardRules, OutputGuardRules, Rules } from './guard-rules.ts'
import type { RequestText } from './guard-texts.ts'

export type GuardTasks = Pick<GatewayTasks, 'run'>

/** A request waits for its verdict at most so long; some megabytes of text take some hundred milliseconds. */
const REQUEST_DEADLINE_MS = 2_000
/** The reader of a reply waits for each window; looking at one takes a few milliseconds at most. */
const WINDOW_DEADLINE_MS = 1_000

/** What each text holds, in its place; a promise only where the pool is asked, which rejects with a TaskError. */
export function evaluateTexts(
  tasks: GuardTasks,
  { all }: GuardRules,
  texts: readonly RequestText[],
  signal: AbortSignal,
): readonly (readonly Finding[])[] | Promise<readonly (readonly Finding[])[]> {
  let characters = 0
  for (const { text } of texts) characters += text.length
  if (whereToScan(all.set, characters) === 'inline') {
    const { scanner } = all
    return texts.map(({ text, who }) => scanner.scan(text, who))
  }
  return tasks.run(
    'evaluate-texts',
    { rules: all.set, key: all.key, texts },
    { deadlineMs: REQUEST_DEADLINE_MS, signal },
  )
}

/** What looks at the windows of one text of a reply, in their order. */
export interface WindowEvaluator {
  readonly scanner: Scanner
  /** What looking at it takes of this thread, estimated. */
  micros(window: Window): number
  see(window: Window, signal: AbortSignal): Seen | Promise<Seen>
}

export function windowEvaluator(tasks: GuardTasks, { rules, inline }: OutputGuardRules): WindowEvaluator {
  return inline ? new Here(rules.all) : new Shared(tasks, rules)
}

/** On this thread. */
class Here implements WindowEvaluator {
  readonly scanner: Scanner
  readonly #rules: Rules
  readonly #progress: Progress

  constructor(rules: Rules) {
    this.#rules = rules
    this.scanner = rules.scanner
    this.#progress = this.scanner.begin()
  }

  micros({ text }: Window): number {
    return estimateMicros(this.#rules.set, text.length)
  }

  see({ text, base, from, until }: Window): Seen {
    return this.scanner.scanPiece(text, base, from, until, this.#progress)
  }
}

/** The gateway's own detectors here; the patterns of users, which may be many and large, in the pool. */
class Shared implements WindowEvaluator {
  readonly #tasks: GuardTasks
  readonly #rules: GuardRules
  readonly #own: Here
  /** By rule: where its last finding ended. */
  readonly #ends = new Map<number, number>()

  constructor(tasks: GuardTasks, rules: GuardRules) {
    this.#tasks = tasks
    this.#rules = rules
    this.#own = new Here(rules.builtin)
  }

  get scanner(): Scanner {
    return this.#own.scanner
  }

  micros(window: Window): number {
    return this.#own.micros(window)
  }

  see(window: Window, signal: AbortSignal): Seen | Promise<Seen> {
    const own = this.#own.see(window)
    const { set, key } = this.#rules.custom
    if (set.custom.length === 0) return own
    const texts = [{ text: window.text, who: 'other' as const }]
    return this.#tasks
      .run('evaluate-texts', { rules: set, key, texts }, { deadlineMs: WINDOW_DEADLINE_MS, signal })
      .then(([found = []]) => ({
        findings: [...own.findings, ...found.flatMap(each => this.#placed(each, window))].sort(inOrder),
        continued: own.continued,
      }))
  }

  /** In the whole text and the whole set; nothing that an earlier window has told of. */
  #placed(finding: Finding, { base, from, until }: Window): readonly Finding[] {
    const rule = finding.rule + this.#rules.builtin.set.builtins.length
    const end = finding.end + base
    if (finding.start >= until || finding.end <= from || end <= (this.#ends.get(rule) ?? 0)) return []
    this.#ends.set(rule, end)
    return [{ ...finding, rule, start: base + Math.max(finding.start, from), end }]
  }
}

function inOrder(a: Finding, b: Finding): number {
  return a.start - b.start || b.end - a.end || a.rule - b.rule
}
