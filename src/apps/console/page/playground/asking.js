/** One request of the playground: its body, and its answer as it streams in. */
import { messageOf, readEvents } from '../calls.js'

export const START = {
  state: 'idle',
  text: '',
  reasoning: '',
  told: '',
  id: null,
  firstMs: null,
  totalMs: null,
  usage: null,
  response: null,
}
/** Limit for a model that does not stop. */
const MAX_TEXT_CHARS = 200_000
/** A long text is rendered again each time, and people do not read faster. */
const RENDER_INTERVAL_MS = 100

/** The body of POST /responses, without empty fields. */
export function bodyOf({ system, input, max, temperature, top, effort }, model) {
  return {
    model,
    ...(system === '' ? {} : { instructions: system }),
    input,
    stream: true,
    max_output_tokens: Number(max),
    ...(temperature === '' ? {} : { temperature: Number(temperature) }),
    ...(top === '' ? {} : { top_p: Number(top) }),
    ...(effort === '' ? {} : { reasoning: { effort } }),
  }
}

/** Calls `change` with functions from the answer so far to the changed one. Never throws. */
export async function ask(calls, apiKey, body, signal, change) {
  const beganMs = performance.now()
  const pending = { text: '', reasoning: '', firstMs: null, timer: null }
  const show = () => {
    clearTimeout(pending.timer)
    pending.timer = null
    const { text, reasoning, firstMs } = pending
    pending.text = ''
    pending.reasoning = ''
    change(answer => ({
      firstMs: answer.firstMs ?? firstMs,
      text: (answer.text + text).slice(0, MAX_TEXT_CHARS),
      reasoning: (answer.reasoning + reasoning).slice(0, MAX_TEXT_CHARS),
    }))
  }
  const add = (field, delta) => {
    pending.firstMs ??= performance.now() - beganMs
    pending[field] += delta
    pending.timer ??= setTimeout(show, RENDER_INTERVAL_MS)
  }
  try {
    const reply = await calls.trial(apiKey, body, signal)
    if (!reply.ok) throw new Error(`${reply.status}: ${await messageOf(reply)}`)
    const id = reply.headers.get('x-generation-id')
    change(() => ({ id }))
    await readEvents(reply, (name, data) => {
      if (name === 'response.output_text.delta') add('text', JSON.parse(data).delta)
      else if (/^response\.reasoning(?:_summary_text|_text)?\.delta$/.test(name))
        add('reasoning', JSON.parse(data).delta)
      else if (/^response\.(?:completed|incomplete|failed)$/.test(name)) {
        const { response } = JSON.parse(data)
        show()
        change(() => ({
          response,
          usage: response.usage ?? null,
          told: response.error?.message ?? response.incomplete_details?.reason ?? '',
          state: response.status === 'failed' ? 'failed' : 'done',
        }))
      }
    })
    show()
    change(({ state }) => ({ state: state === 'running' ? 'done' : state }))
  } catch (error) {
    show()
    change(() => (signal.aborted ? { state: 'stopped' } : { state: 'failed', told: error.message }))
  }
  change(() => ({ totalMs: performance.now() - beganMs }))
}
