/**
 * Looking at what a model says, window by window, without holding up others: what takes too long of one turn of the
 * event loop goes on in the next. One per attempt. Hot path of guarded replies.
 */
import { TextWindow, type Window } from '../../guardrails/window.ts'
import { type GuardTasks, type WindowEvaluator, type WindowSeen, windowEvaluator } from './evaluate.ts'
import type { OutputGuardRules } from './rules.ts'

/** One text while it is looked at. */
export interface Look {
  readonly window: TextWindow
  readonly evaluator: WindowEvaluator
}

/** Texts that are whole: what was seen in them, and what may be said in their places. */
export interface AllSeen {
  readonly seen: readonly WindowSeen[]
  readonly said: readonly string[]
}

/** Looking at windows may take so long of one turn, estimated. A whole answer can have hundreds. */
const TURN_MAX_MICROS = 1_000

export class Looker {
  readonly #rules: OutputGuardRules
  readonly #tasks: GuardTasks
  readonly #abort = new AbortController()
  /** Spent in this turn, estimated. */
  #micros = 0

  constructor(rules: OutputGuardRules, tasks: GuardTasks) {
    this.#rules = rules
    this.#tasks = tasks
  }

  /** The event loop has been elsewhere. */
  freshTurn(): void {
    this.#micros = 0
  }

  /** Nobody waits for what is being looked at. */
  abort(): void {
    this.#abort.abort()
  }

  begin(): Look {
    const evaluator = windowEvaluator(this.#tasks, this.#rules)
    return { window: new TextWindow(evaluator.scanner, this.#rules.size), evaluator }
  }

  /** A promise never rejects. */
  see(look: Look, window: Window): WindowSeen | Promise<WindowSeen> {
    return this.#micros < TURN_MAX_MICROS ? this.#seeNow(look, window) : this.#seeLater(look, window)
  }

  /** Texts that are whole, one after the other, up to what `ends` all. */
  async seeAll(texts: readonly string[], ends: (seen: WindowSeen) => boolean): Promise<AllSeen> {
    const seen: WindowSeen[] = []
    const said: string[] = []
    for (const text of texts) {
      const look = this.begin()
      look.window.add(text)
      look.window.finish()
      let left = ''
      for (let window = look.window.next(); window !== null; window = look.window.next()) {
        const each = await this.see(look, window)
        seen.push(each)
        if (this.#abort.signal.aborted || ends(each)) return { seen, said }
        left += look.window.release(window, each)
      }
      said.push(left)
    }
    return { seen, said }
  }

  #seeNow({ evaluator }: Look, window: Window): WindowSeen | Promise<WindowSeen> {
    try {
      const seen = evaluator.see(window, this.#abort.signal)
      this.#micros += evaluator.micros(window, seen instanceof Promise ? 0 : seen.findings.length)
      return seen
    } catch (cause) {
      return { findings: [], continued: [], failure: { cause } }
    }
  }

  async #seeLater(look: Look, window: Window): Promise<WindowSeen> {
    await new Promise(resolve => setImmediate(resolve))
    this.freshTurn()
    return this.#seeNow(look, window)
  }
}
