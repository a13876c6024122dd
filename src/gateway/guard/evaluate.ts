/**
 * Where rules are evaluated: here when that is cheap whatever the text says, otherwise in the task pool within a
 * deadline. Serve threads.
 */
import { INLINE_MAX_FOUND } from '../../guardrails/cost.ts'
import type { Finding } from '../../guardrails/rules.ts'
import type { Progress, Scanner } from '../../guardrails/scanner.ts'
import type { Seen, Window } from '../../guardrails/window.ts'
import type { GatewayTasks } from '../../tasks/pool.ts'
import type { GuardRules, OutputGuardRules, Rules } from './rules.ts'
import type { RequestText } from './texts.ts'

export type GuardTasks = Pick<GatewayTasks, 'run'>

/** A request waits for its verdict at most so long; some megabytes of text take some hundred milliseconds. */
const REQUEST_DEADLINE_MS = 2_000
/** The reader of a reply waits for each window; looking at one takes a few milliseconds at most. */
const WINDOW_DEADLINE_MS = 1_000

/** Why not everything could be looked for. */
export interface Failure {
  readonly cause: unknown
}

export interface TextsSeen {
  /** Of each text, in its place. */
  readonly findings: readonly (readonly Finding[])[]
  /** Null: everything was looked for. */
  readonly failure: Failure | null
}

/** What the texts hold; a promise, which never rejects, only where the pool is asked. */
export function evaluateTexts(
  tasks: GuardTasks,
  rules: GuardRules,
  texts: readonly RequestText[],
  signal: AbortSignal,
): TextsSeen | Promise<TextsSeen> {
  const { all } = rules
  try {
    const seen = seenHere(all, texts, INLINE_MAX_FOUND)
    if (seen !== null) return { findings: seen, failure: null }
    return tasks
      .run(
        'evaluate-texts',
        { rules: all.set, key: all.key, field: all.field, texts },
        { deadlineMs: REQUEST_DEADLINE_MS, signal },
      )
      .then(
        findings => ({ findings, failure: null }),
        cause => seenInPart(rules, texts, cause),
      )
  } catch (cause) {
    return seenInPart(rules, texts, cause)
  }
}

/** What the gateway's own detectors find here, where that is cheap. */
function seenInPart({ builtin }: GuardRules, texts: readonly RequestText[], cause: unknown): TextsSeen {
  return { findings: seenHere(builtin, texts, Number.POSITIVE_INFINITY) ?? [], failure: { cause } }
}

/** Null where it would take too long, or there is more to find than `most`. */
function seenHere(
  rules: Rules,
  texts: readonly RequestText[],
  most: number,
): readonly (readonly Finding[])[] | null {
  let characters = 0
  for (const { text } of texts) characters += text.length
  if (rules.cost.where(characters, texts.length, most) !== 'inline') return null
  const { scanner } = rules
  const seen: (readonly Finding[])[] = []
  let left = most
  for (const { text, who } of texts) {
    const found = scanner.scanUpTo(left, text, who)
    if (found === null) return null
    left -= found.length
    seen.push(found)
  }
  return seen
}

/** What a window holds. */
export interface WindowSeen extends Seen {
  /** Null: everything was looked for. */
  readonly failure: Failure | null
}

/** What looks at the windows of one text of a reply, in their order. */
export interface WindowEvaluator {
  readonly scanner: Scanner
  /** What looking at it takes of this thread where so much was found, estimated. */
  micros(window: Window, found: number): number
  /** A promise never rejects. */
  see(window: Window, signal: AbortSignal): WindowSeen | Promise<WindowSeen>
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

  micros({ text }: Window, found: number): number {
    return this.#rules.cost.windowMicros(text.length, found)
  }

  see({ text, base, from, until }: Window): WindowSeen {
    const { findings, continued } = this.scanner.scanPiece(text, base, from, until, this.#progress)
    return { findings, continued, failure: null }
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

  micros(window: Window, found: number): number {
    return this.#own.micros(window, found)
  }

  see(window: Window, signal: AbortSignal): WindowSeen | Promise<WindowSeen> {
    const own = this.#own.see(window)
    if (this.#rules.custom.set.custom.length === 0) return own
    return this.#found(window, signal).then(
      found => ({ ...own, findings: [...own.findings, ...found].sort(inOrder) }),
      cause => ({ ...own, failure: { cause } }),
    )
  }

  async #found(window: Window, signal: AbortSignal): Promise<readonly Finding[]> {
    const { set, key, field } = this.#rules.custom
    const texts = [{ text: window.text, who: 'other' as const }]
    const input = { rules: set, key, field, texts }
    const [found = []] = await this.#tasks.run('evaluate-texts', input, {
      deadlineMs: WINDOW_DEADLINE_MS,
      signal,
    })
    return found.flatMap(each => this.#placed(each, window))
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
