/**
 * The plugins at work on one request, as one list of steps in the order of the table. Hot path: a request that names
 * no plugin costs one question to each of those that work unasked, and nothing is waited for that does not wait.
 */
import { GatewayError } from '../errors.ts'
import { unseenTexts } from '../guardrails/texts/request-texts.ts'
import type { AnyPlugin, Step, Turn, Verdict } from '../plugins/plugin.ts'
import type { OutputItem } from '../protocol/items.ts'
import type { ResponsesRequest } from '../protocol/request.ts'
import type { Attempt, Candidate, Exchange } from './exchange.ts'
import type { InputGuard } from './guard/guard.ts'

/** The steps of a request; null when no plugin has to do with it. */
export type StepsOf = (request: ResponsesRequest) => Steps | null

/** Of requests on which no plugin is to work. */
export const NO_STEPS: StepsOf = () => null

export function createSteps(plugins: readonly AnyPlugin[]): StepsOf {
  const unasked = plugins.filter(plugin => plugin.unasked === true)
  return request => {
    const concerned = request.plugins === undefined ? unasked : plugins
    if (concerned.length === 0) return null
    const steps: Step[] = []
    for (const plugin of concerned) {
      const settings = request.plugins?.find(({ id }) => id === plugin.id) ?? null
      if (settings === null ? plugin.unasked !== true : isOff(settings)) continue
      const step = plugin.step(settings as never, request)
      if (step !== null) steps.push(step)
    }
    return steps.length === 0 ? null : new Steps(steps)
  }
}

/** Not every plugin can be turned off; those that can have the field. */
function isOff(settings: object): boolean {
  return 'enabled' in settings && settings.enabled === false
}

const PASS: Verdict = { kind: 'pass' }

export class Steps {
  /** Nothing of a turn may leave before it was judged. */
  readonly holds: boolean
  readonly judges: boolean
  readonly finishes: boolean
  readonly addresses: boolean
  readonly #steps: readonly Step[]

  constructor(steps: readonly Step[]) {
    this.#steps = steps
    this.holds = steps.some(step => step.holds === true)
    this.judges = steps.some(step => step.judge !== undefined)
    this.finishes = steps.some(step => step.finish !== undefined)
    this.addresses = steps.some(step => step.address !== undefined)
  }

  /**
   * Each in its turn, since one may build on what another has written; what it has written is looked at before the next
   * one works on it. Rejects with why the request is refused.
   */
  async prepare(exchange: Exchange, input: InputGuard | null = null): Promise<void> {
    for (const step of this.#steps) {
      const before = exchange.prompt
      const preparing = step.prepare?.(exchange, text => this.#inspect(text, exchange, input))
      if (preparing !== undefined) await preparing
      exchange.signal.throwIfAborted()
      if (exchange.prompt !== before) await this.#look(step, exchange, before, input)
    }
  }

  /** The text as guardrails leave it, once the steps with `look` have seen it too. */
  async #inspect(text: string, exchange: Exchange, input: InputGuard | null): Promise<string> {
    const left = input === null ? text : await input.text(exchange, text)
    if (left !== '') await this.#show([left], exchange)
    return left
  }

  /** The candidates as all steps order them. */
  order<Each extends Candidate>(candidates: readonly Each[], exchange: Exchange): readonly Each[] {
    return this.#steps.reduce((ordered, step) => step.order?.(ordered, exchange) ?? ordered, candidates)
  }

  /** Makes the prompt fit the endpoint that is asked next, as in `prepare`. Rejects with why it cannot be asked. */
  async address(
    exchange: Exchange,
    endpoint: Attempt['endpoint'],
    input: InputGuard | null = null,
  ): Promise<void> {
    for (const step of this.#steps) {
      const before = exchange.prompt
      const addressing = step.address?.(exchange, endpoint)
      if (addressing !== undefined) await addressing
      exchange.signal.throwIfAborted()
      if (exchange.prompt !== before) await this.#look(step, exchange, before, input)
    }
  }

  /** Guardrails and the other steps look at what a step has brought into the prompt, such as the text of a file. */
  async #look(
    step: Step,
    exchange: Exchange,
    before: ResponsesRequest,
    input: InputGuard | null,
  ): Promise<void> {
    if (step.bringsNothing === true) return
    try {
      const checking = input?.prompt(exchange, before)
      if (checking !== undefined) await checking
      if (this.#steps.every(other => other.look === undefined)) return
      const texts = unseenTexts(exchange.prompt, before).flatMap(({ text }) => (text === '' ? [] : [text]))
      if (texts.length > 0) await this.#show(texts, exchange)
    } catch (refused) {
      // An error never repeats what was refused, and it tells of files what was read of them.
      exchange.parsedFiles.length = 0
      throw refused
    }
  }

  async #show(texts: readonly string[], exchange: Exchange): Promise<void> {
    for (const step of this.#steps) {
      await step.look?.(exchange, texts)
      exchange.signal.throwIfAborted()
    }
  }

  /** The first verdict that is no pass counts; nobody after it is asked. Rejects when the exchange is over. */
  async judge(turn: Turn, exchange: Exchange): Promise<Verdict> {
    for (const step of this.#steps) {
      const verdict = (await step.judge?.(turn, exchange)) ?? PASS
      if (verdict.kind !== 'pass') return verdict
    }
    return PASS
  }

  /** The items as all steps leave them. */
  async finish(turn: Turn, exchange: Exchange): Promise<readonly OutputItem[]> {
    let { output } = turn
    for (const step of this.#steps) {
      output = (await step.finish?.({ ...turn, output }, exchange)) ?? output
    }
    return output
  }
}

/** What a plugin got wrong is told as ours, whatever it threw: a provider's failure would be tried again elsewhere. */
export function stepFailure(thrown: unknown, { signal }: Pick<Exchange, 'signal'>): unknown {
  if (signal.aborted) return signal.reason
  if (!(thrown instanceof GatewayError) || thrown.retry === 'never') return thrown
  return new GatewayError('internal', 'Internal Server Error', { cause: thrown })
}
