/**
 * Evaluates rules on texts: inline if that is cheap in the worst case, otherwise in the task pool with a deadline.
 * Scans of replies above the budget of one event-loop turn run in the next turn. Serve threads.
 */

import { isPending, whenReady } from '../../base/maybe-promise.ts'
import type { RequestSignal } from '../../base/signal.ts'
import type { Finding } from '../../features/guardrails/detector.ts'
import type { Progress, Scanner } from '../../features/guardrails/scanner.ts'
import { joinedTexts, withCrossing } from '../../features/guardrails/texts/joined-texts.ts'
import type { RequestText } from '../../features/guardrails/texts/request-texts.ts'
import { TextWindow, type Window, type WindowFindings } from '../../features/guardrails/window.ts'
import type { GatewayTasks } from '../../features/tasks/pool/pool.ts'
import type { CompiledRules, GuardRules, OutputGuardRules } from './compiled-rules.ts'

export type GuardTasks = Pick<GatewayTasks, 'run'>

/** Texts up to this length take a worker a few milliseconds; longer ones take tens of milliseconds. */
const SHORT_MAX_CHARS = 65_536
/** For all texts of a request; some megabytes of text take some hundred milliseconds. */
const REQUEST_DEADLINE_MS = 2_000
/** For one window of a reply, while its reader waits; one takes a few milliseconds at most. */
const WINDOW_DEADLINE_MS = 1_000

/** The reason why some rules could not be evaluated. */
interface EvaluationFailure {
  readonly cause: unknown
}

export interface TextsResult {
  /** The findings of each text, in the order of the texts. */
  readonly findings: readonly (readonly Finding[])[]
  /** Null: every rule was evaluated. */
  readonly failure: EvaluationFailure | null
}

/** Finds matches of the rules in the texts. Returns a promise only if the pool is used; it never rejects. */
export function evaluateTexts(
  tasks: GuardTasks,
  rules: GuardRules,
  texts: readonly RequestText[],
  signal: RequestSignal,
): TextsResult | Promise<TextsResult> {
  const joins = joinedTexts(texts)
  if (joins.length === 0) return evaluateEach(tasks, rules, texts, signal)
  return whenReady(evaluateEach(tasks, rules, [...texts, ...joins], signal), ({ findings, failure }) => {
    const textFindings = findings.slice(0, texts.length)
    return { findings: withCrossing(textFindings, joins, findings.slice(texts.length)), failure }
  })
}

function evaluateEach(
  tasks: GuardTasks,
  rules: GuardRules,
  texts: readonly WrittenText[],
  signal: RequestSignal,
): TextsResult | Promise<TextsResult> {
  const { allRules } = rules
  try {
    const characters = charactersOf(texts)
    const maxInlineCost = allRules.cost.maxInlineFindings(characters, texts.length)
    const findings = maxInlineCost === null ? null : evaluateInline(allRules, texts, maxInlineCost)
    if (findings !== null) return { findings, failure: null }
    return tasks
      .run(
        'evaluate-texts',
        {
          rules: allRules.set,
          key: allRules.key,
          field: allRules.field,
          texts: texts.map(({ text, who }) => ({ text, who })),
        },
        { deadlineMs: REQUEST_DEADLINE_MS, long: characters > SHORT_MAX_CHARS, signal },
      )
      .then(
        taskFindings => ({ findings: taskFindings, failure: null }),
        cause => evaluateBuiltins(rules, texts, cause),
      )
  } catch (cause) {
    return evaluateBuiltins(rules, texts, cause)
  }
}

type WrittenText = Pick<RequestText, 'text' | 'who'>

/** After a failure: the findings of the built-in detectors, if they are cheap. */
function evaluateBuiltins(
  { builtin }: GuardRules,
  texts: readonly WrittenText[],
  cause: unknown,
): TextsResult {
  const isCheap = builtin.cost.placeFor(charactersOf(texts), texts.length) === 'inline'
  const findings = isCheap ? evaluateInline(builtin, texts, Number.POSITIVE_INFINITY) : null
  return { findings: findings ?? [], failure: { cause } }
}

function charactersOf(texts: readonly WrittenText[]): number {
  let characters = 0
  for (const { text } of texts) characters += text.length
  return characters
}

/** Null if there are more findings than `maxFindings`. */
function evaluateInline(
  { scanner }: CompiledRules,
  texts: readonly WrittenText[],
  maxFindings: number,
): readonly (readonly Finding[])[] | null {
  const findings: (readonly Finding[])[] = []
  let remaining = maxFindings
  for (const { text, who } of texts) {
    const textFindings = scanner.scanUpTo(remaining, text, who)
    if (textFindings === null) return null
    remaining -= textFindings.length
    findings.push(textFindings)
  }
  return findings
}

/** The findings in one window of a reply. */
export interface WindowResult extends WindowFindings {
  /** Null: every rule was evaluated. */
  readonly failure: EvaluationFailure | null
}

/** Evaluates the windows of one text of a reply, in order. */
interface WindowEvaluator {
  readonly scanner: Scanner
  /** Estimated microseconds on this thread for a window with this many findings. */
  micros(window: Window, findingCount: number): number
  /** A promise never rejects. */
  evaluate(window: Window, signal: RequestSignal): WindowResult | Promise<WindowResult>
}

function windowEvaluator(tasks: GuardTasks, { rules, isInline }: OutputGuardRules): WindowEvaluator {
  return isInline ? new InlineEvaluator(rules.allRules) : new SplitEvaluator(tasks, rules)
}

/** Evaluates all rules on this thread. */
class InlineEvaluator implements WindowEvaluator {
  readonly scanner: Scanner
  readonly #rules: CompiledRules
  readonly #progress: Progress

  constructor(rules: CompiledRules) {
    this.#rules = rules
    this.scanner = rules.scanner
    this.#progress = this.scanner.begin()
  }

  micros({ text }: Window, findingCount: number): number {
    return this.#rules.cost.windowMicros(text.length, findingCount)
  }

  evaluate({ text, base, from, until }: Window): WindowResult {
    const { findings, continued } = this.scanner.scanPiece(text, base, from, until, this.#progress)
    return { findings, continued, failure: null }
  }
}

/** Evaluates built-in detectors on this thread, and user-defined patterns, which may be many and large, in the pool. */
class SplitEvaluator implements WindowEvaluator {
  readonly #tasks: GuardTasks
  readonly #rules: GuardRules
  readonly #builtin: InlineEvaluator
  /** Keyed by rule: the end of its last finding. */
  readonly #ends = new Map<number, number>()

  constructor(tasks: GuardTasks, rules: GuardRules) {
    this.#tasks = tasks
    this.#rules = rules
    this.#builtin = new InlineEvaluator(rules.builtin)
  }

  get scanner(): Scanner {
    return this.#builtin.scanner
  }

  micros(window: Window, findingCount: number): number {
    return this.#builtin.micros(window, findingCount)
  }

  evaluate(window: Window, signal: RequestSignal): WindowResult | Promise<WindowResult> {
    const builtin = this.#builtin.evaluate(window)
    if (this.#rules.custom.set.custom.length === 0) return builtin
    return this.#evaluateCustom(window, signal).then(
      customFindings => ({
        ...builtin,
        findings: [...builtin.findings, ...customFindings].sort(compareFindings),
      }),
      cause => ({ ...builtin, failure: { cause } }),
    )
  }

  async #evaluateCustom(window: Window, signal: RequestSignal): Promise<readonly Finding[]> {
    const { set, key, field } = this.#rules.custom
    const texts = [{ text: window.text, who: 'other' as const }]
    const input = { rules: set, key, field, texts }
    const [findings = []] = await this.#tasks.run('evaluate-texts', input, {
      deadlineMs: WINDOW_DEADLINE_MS,
      signal,
    })
    return findings.flatMap(finding => this.#toWholeText(finding, window))
  }

  /**
   * The finding with its position in the whole text and its number in the whole rule set; empty if an earlier window
   * had it.
   */
  #toWholeText(finding: Finding, { base, from, until }: Window): readonly Finding[] {
    const rule = finding.rule + this.#rules.builtin.set.builtins.length
    const end = finding.end + base
    if (finding.start >= until || finding.end <= from || end <= (this.#ends.get(rule) ?? 0)) return []
    this.#ends.set(rule, end)
    return [{ ...finding, rule, start: base + Math.max(finding.start, from), end }]
  }
}

function compareFindings(a: Finding, b: Finding): number {
  return a.start - b.start || b.end - a.end || a.rule - b.rule
}

/** One text, while it is scanned. */
export interface TextScan {
  readonly window: TextWindow
  readonly evaluator: WindowEvaluator
}

interface ScannedTexts {
  /** The result of every window of every text, in their order. */
  readonly results: readonly WindowResult[]
  /** The texts, redacted. */
  readonly texts: readonly string[]
}

/** Estimated microseconds that scans may take per event-loop turn. A whole answer can have hundreds of windows. */
const TURN_MAX_MICROS = 1_000

export class WindowScan {
  readonly #rules: OutputGuardRules
  readonly #tasks: GuardTasks
  readonly #abort = new AbortController()
  /** Estimated microseconds spent in this event-loop turn. */
  #spentMicros = 0

  constructor(rules: OutputGuardRules, tasks: GuardTasks) {
    this.#rules = rules
    this.#tasks = tasks
  }

  /** Resets the scan budget. Call once per event-loop turn. */
  resetBudget(): void {
    this.#spentMicros = 0
  }

  /** Cancels running scans, whose results are no longer needed. */
  abort(): void {
    this.#abort.abort()
  }

  /** `before`: the end of the text that the client read directly before this one. */
  begin(before = ''): TextScan {
    const evaluator = windowEvaluator(this.#tasks, this.#rules)
    return { window: new TextWindow(evaluator.scanner, this.#rules.size, before), evaluator }
  }

  /** Scans the next window of a text. A promise never rejects. */
  scan(text: TextScan, window: Window): WindowResult | Promise<WindowResult> {
    return this.#spentMicros < TURN_MAX_MICROS ? this.#scanNow(text, window) : this.#scanLater(text, window)
  }

  /** Scans complete texts one after the other, up to the first result for which `isFinal` is true. */
  async scanAll(texts: readonly string[], isFinal: (result: WindowResult) => boolean): Promise<ScannedTexts> {
    const results: WindowResult[] = []
    const redactedTexts: string[] = []
    for (const text of texts) {
      const scan = this.begin()
      scan.window.add(text)
      scan.window.finish()
      let releasedText = ''
      for (let window = scan.window.next(); window !== null; window = scan.window.next()) {
        const result = await this.scan(scan, window)
        results.push(result)
        if (this.#abort.signal.aborted || isFinal(result)) return { results, texts: redactedTexts }
        releasedText += scan.window.release(window, result)
      }
      redactedTexts.push(releasedText)
    }
    return { results, texts: redactedTexts }
  }

  #scanNow({ evaluator }: TextScan, window: Window): WindowResult | Promise<WindowResult> {
    try {
      const result = evaluator.evaluate(window, this.#abort.signal)
      this.#spentMicros += evaluator.micros(window, isPending(result) ? 0 : result.findings.length)
      return result
    } catch (cause) {
      return { findings: [], continued: [], failure: { cause } }
    }
  }

  async #scanLater(text: TextScan, window: Window): Promise<WindowResult> {
    await new Promise(resolve => setImmediate(resolve))
    this.resetBudget()
    return this.#scanNow(text, window)
  }
}
