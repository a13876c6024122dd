/**
 * Response healing: repairs an answer that should be JSON and almost is. Whole answers only, because a stream is sent
 * before its text is complete. Long texts are repaired in the task pool, because they may be hostile.
 */
import type { Exchange, Turn } from '../../exchange/exchange.ts'
import type { ActivePlugin, Plugin } from '../../exchange/plugin.ts'
import type { OutputItem } from '../../protocol/items.ts'
import type { OutputTextPart } from '../../protocol/parts.ts'
import { type GatewayTasks, PATIENT_WAIT_MS } from '../tasks/pool/pool.ts'
import { TaskError } from '../tasks/task.ts'
import { withTextParts } from './question.ts'

export interface ResponseHealingDeps {
  readonly tasks: Pick<GatewayTasks, 'runInlineOr'>
}

/** Checking and repairing this many characters takes about ten microseconds. */
const SMALL_TEXT_CHARS = 1_024
/** Megabytes of text take a fraction of this time; the first repair also starts the worker. */
const REPAIR_TIMEOUT_MS = 5_000

export function createResponseHealing({ tasks }: ResponseHealingDeps): Plugin<'response-healing'> {
  return {
    id: 'response-healing',
    activate(settings, { stream, text }) {
      const mode = text?.format?.type
      if (settings === null || stream === true) return null
      return mode === 'json_object' || mode === 'json_schema' ? new ActiveHealing(tasks, mode) : null
    },
  }
}

class ActiveHealing implements ActivePlugin {
  readonly id = 'response-healing'
  readonly isRepeatable = true
  readonly #tasks: ResponseHealingDeps['tasks']
  readonly #mode: 'json_object' | 'json_schema'

  constructor(tasks: ResponseHealingDeps['tasks'], mode: 'json_object' | 'json_schema') {
    this.#tasks = tasks
    this.#mode = mode
  }

  finish(
    { output, finish }: Turn,
    exchange: Exchange,
  ): readonly OutputItem[] | Promise<readonly OutputItem[]> {
    // A cut-off answer lacks content: closing its brackets would hide that.
    if (finish === 'length' || finish === 'content_filter') return output
    return withTextParts(output, part => (part.text === '' ? part : this.#heal(part, exchange)))
  }

  async #heal(part: OutputTextPart, exchange: Exchange): Promise<OutputTextPart> {
    const { text } = part
    let healed = { text, valid: false, improved: false }
    try {
      healed = await this.#tasks.runInlineOr(
        'repair-json',
        { text },
        text.length > SMALL_TEXT_CHARS ? 'large' : 'small',
        {
          deadlineMs: REPAIR_TIMEOUT_MS,
          waitMs: PATIENT_WAIT_MS,
          key: exchange.caller.keyHash,
          signal: exchange.signal,
        },
      )
    } catch (thrown) {
      exchange.signal.throwIfAborted()
      if (!(thrown instanceof TaskError)) throw thrown
    }
    if (healed.valid && !healed.improved) return part
    exchange.pipeline.push({
      type: 'response_healing',
      name: 'response-healing',
      summary: healed.improved
        ? 'the answer was repaired into valid JSON'
        : 'the answer could not be repaired into valid JSON',
      data: {
        mode: this.#mode,
        improved: healed.improved,
        original_length: text.length,
        healed_length: healed.text.length,
      },
    })
    if (!healed.improved) return part
    // Annotations with positions would point to the wrong place in the new text.
    const annotations = part.annotations.filter(annotation => !('start_index' in annotation))
    const { logprobs: _logprobs, ...plain } = part
    return {
      ...plain,
      text: healed.text,
      annotations,
      ...(part.logprobs === undefined ? {} : { logprobs: [] }),
    }
  }
}
