/** The playground: one request with an API key, streamed. The key is in the memory of this tab alone. */
import { messageOf, readEvents } from './calls.js'
import { count, duration, usd } from './format.js'
import { html, useEffect, useRef, useState } from './html.js'
import { Chip } from './parts.js'

const START = { state: 'idle', text: '', told: '', id: null, firstMs: null, usage: null }
/** A page should not grow without end because a model does not stop. */
const TEXT_MAX = 200_000

export function Trial({ calls, memory }) {
  const [fields, setFields] = useState(memory.fields ?? { apiKey: '', model: '', input: '', max: '300' })
  const [answer, setAnswer] = useState(START)
  const [models, setModels] = useState([])
  const running = useRef(null)

  memory.fields = fields
  const change = name => event => setFields({ ...fields, [name]: event.currentTarget.value })

  useEffect(() => {
    const leaving = new AbortController()
    calls.view('models', {}, leaving.signal).then(
      ({ data }) => setModels(data.map(({ id }) => id)),
      () => undefined,
    )
    return () => {
      leaving.abort()
      running.current?.abort()
    }
  }, [])

  const send = async event => {
    event.preventDefault()
    const stop = new AbortController()
    running.current = stop
    setAnswer({ ...START, state: 'running' })
    const end = change => setAnswer(now => ({ ...now, ...change }))
    try {
      await ask(calls, fields, stop.signal, setAnswer)
      setAnswer(now => (now.state === 'running' ? { ...now, state: 'done' } : now))
    } catch (error) {
      if (stop.signal.aborted) end({ state: 'stopped' })
      else end({ state: 'failed', told: error.message })
    }
    running.current = null
  }

  return html`
    <section class="trial" aria-labelledby="trial-heading">
      <h2 id="trial-heading">Try it</h2>
      <p class="dim">
        One request to the public port. It needs an API key: a management key cannot ask models. It costs what it costs.
      </p>
      <form onSubmit=${send}>
        <label>
          <span>API key</span>
          <input type="password" required autocomplete="off" value=${fields.apiKey} onInput=${change('apiKey')} />
        </label>
        <label>
          <span>Model</span>
          <input required list="models" autocomplete="off" value=${fields.model} onInput=${change('model')} />
        </label>
        <datalist id="models">${models.map(id => html`<option key=${id} value=${id}></option>`)}</datalist>
        <label>
          <span>Most output tokens</span>
          <input type="number" required min="1" max="100000" value=${fields.max} onInput=${change('max')} />
        </label>
        <label class="wide">
          <span>Question</span>
          <textarea required rows="4" value=${fields.input} onInput=${change('input')}></textarea>
        </label>
        <div class="bar">
          <button type="submit" class="main" disabled=${answer.state === 'running'}>Send</button>
          <button type="button" disabled=${answer.state !== 'running'} onClick=${() => running.current?.abort()}>
            Stop
          </button>
          <${Told} answer=${answer} />
        </div>
      </form>
      <h3 id="answer-heading">Answer</h3>
      <output class="answer" aria-labelledby="answer-heading" aria-busy=${answer.state === 'running'}>${answer.text}</output>
    </section>
  `
}

const TONES = { running: 'plain', done: 'good', failed: 'bad', stopped: 'warn' }

function Told({ answer: { state, told, id, firstMs, usage } }) {
  if (state === 'idle') return null
  const parts = [
    told,
    firstMs === null ? '' : `first token ${duration(firstMs)}`,
    usage === null ? '' : `${count(usage.input_tokens)} → ${count(usage.output_tokens)} tokens`,
    usage?.cost === undefined ? '' : usd(usage.cost),
    id ?? '',
  ]
  return html`<span role="status">
    <${Chip} tone=${TONES[state]}>${state}<//> ${parts.filter(part => part !== '').join(' · ')}
  </span>`
}

/** @throws Error with a message for people */
async function ask(calls, { apiKey, model, input, max }, signal, setAnswer) {
  const beganMs = performance.now()
  const body = { model, input, stream: true, max_output_tokens: Number(max) }
  const reply = await calls.trial(apiKey, body, signal)
  if (!reply.ok) throw new Error(`${reply.status}: ${await messageOf(reply)}`)
  const id = reply.headers.get('x-generation-id')
  setAnswer(now => ({ ...now, id }))
  await readEvents(reply, (name, data) => {
    if (name === 'response.output_text.delta') {
      const { delta } = JSON.parse(data)
      const firstMs = performance.now() - beganMs
      setAnswer(now => ({
        ...now,
        firstMs: now.firstMs ?? firstMs,
        text: (now.text + delta).slice(0, TEXT_MAX),
      }))
    } else if (/^response\.(?:completed|incomplete|failed)$/.test(name)) {
      const { response } = JSON.parse(data)
      const told = response.error?.message ?? response.incomplete_details?.reason ?? ''
      const state = response.status === 'failed' ? 'failed' : 'done'
      setAnswer(now => ({ ...now, state, told, usage: response.usage ?? null }))
    }
  })
}
