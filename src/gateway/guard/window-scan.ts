/**
 * Scans the texts of a reply window by window without blocking other exchanges: scans above the budget of one
 * event-loop turn run in the next turn. One per attempt. Hot path of guarded replies.
 */
import { TextWindow, type Window } from '../../guardrails/window.ts'
import { isPending } from '../../ready.ts'
import { type GuardTasks, type WindowEvaluator, type WindowResult, windowEvaluator } from './evaluate.ts'
import type { OutputGuardRules } from './rules.ts'

/** One text, while it is scanned. */
export interface TextScan {
  readonly window: TextWindow
  readonly evaluator: WindowEvaluator
}

export interface ScannedTexts {
  /** Of every window of every text, in their order. */
  readonly results: readonly WindowResult[]
  /** The texts, redacted. */
  readonly texts: readonly string[]
}

/** Estimated microseconds that scans may take of one event-loop turn. A whole answer can have hundreds of windows. */
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

  /** Cancels running scans: their results are not needed any more. */
  abort(): void {
    this.#abort.abort()
  }

  begin(): TextScan {
    const evaluator = windowEvaluator(this.#tasks, this.#rules)
    return { window: new TextWindow(evaluator.scanner, this.#rules.size), evaluator }
  }

  /** Scans the next window of a text. A promise never rejects. */
  scan(text: TextScan, window: Window): WindowResult | Promise<WindowResult> {
    return this.#spentMicros < TURN_MAX_MICROS ? this.#scanNow(text, window) : this.#scanLater(text, window)
  }

  /** Scans complete texts one after the other, up to the first result for which `isFinal` is true. */
  async scanAll(texts: readonly string[], isFinal: (result: WindowResult) => boolean): Promise<ScannedTexts> {
    const results: WindowResult[] = []
    const redacted: string[] = []
    for (const text of texts) {
      const scan = this.begin()
      scan.window.add(text)
      scan.window.finish()
      let released = ''
      for (let window = scan.window.next(); window !== null; window = scan.window.next()) {
        const result = await this.scan(scan, window)
        results.push(result)
        if (this.#abort.signal.aborted || isFinal(result)) return { results, texts: redacted }
        released += scan.window.release(window, result)
      }
      redacted.push(released)
    }
    return { results, texts: redacted }
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
