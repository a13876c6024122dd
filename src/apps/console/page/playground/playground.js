/**
 * The playground: sends one question to up to four models side by side, streamed. The API key stays in this tab's
 * memory.
 */
import { Field } from '../forms.js'
import { html, useEffect, useRef, useState } from '../html.js'
import { Answer } from './answer.js'
import { ask, bodyOf, START } from './asking.js'
import { Snippets } from './snippets.js'

const MAX_MODELS = 4
const INITIAL_FIELDS = {
  models: [''],
  system: '',
  input: '',
  max: '300',
  temperature: '',
  top: '',
  effort: '',
}
const EFFORTS = ['', 'none', 'minimal', 'low', 'medium', 'high']
const VIEWS = [
  ['markdown', 'Formatted'],
  ['text', 'Text'],
  ['json', 'JSON'],
]

export function Playground({ calls, memory }) {
  const [fields, setFields] = useState(memory.fields ?? INITIAL_FIELDS)
  const [apiKey, setApiKey] = useState(memory.apiKey ?? '')
  const [answers, setAnswers] = useState(() => fields.models.map(() => START))
  const [shown, setShown] = useState('markdown')
  const [models, setModels] = useState([])
  const running = useRef(null)
  memory.fields = fields
  memory.apiKey = apiKey

  const set = name => event => setFields({ ...fields, [name]: event.currentTarget.value })
  const setModel = index => event => {
    const value = event.currentTarget.value
    setFields({
      ...fields,
      models: fields.models.map((model, position) => (position === index ? value : model)),
    })
  }
  const resize = next => {
    setFields({ ...fields, models: next })
    setAnswers(next.map((_, index) => answers[index] ?? START))
  }
  const change = index => changes => {
    setAnswers(now =>
      now.map((answer, position) => (position === index ? { ...answer, ...changes(answer) } : answer)),
    )
  }

  useEffect(() => {
    const controller = new AbortController()
    calls.view('models', {}, controller.signal).then(
      ({ data }) => setModels(data.map(({ id }) => id)),
      () => undefined,
    )
    return () => {
      controller.abort()
      running.current?.abort()
    }
  }, [])

  const send = async event => {
    event.preventDefault()
    if (isRunning) return
    const stop = new AbortController()
    running.current = stop
    setAnswers(fields.models.map(() => ({ ...START, state: 'running' })))
    await Promise.all(
      fields.models.map((model, index) =>
        ask(calls, apiKey, bodyOf(fields, model), stop.signal, change(index)),
      ),
    )
  }
  const isRunning = answers.some(({ state }) => state === 'running')

  return html`
    <section class="playground" aria-labelledby="playground-heading">
      <h2 id="playground-heading">Playground</h2>
      <p class="dim">
        Requests to the public port, like any others: they have limits, guardrails and a cost. They need an API key, which stays in this tab until you close or reload it.
      </p>
      <form onSubmit=${send}>
        <div class="controls">
          <${Field}
            label="API key"
            type="password"
            required
            value=${apiKey}
            onInput=${event => setApiKey(event.currentTarget.value)}
          />
          <${Field} label="Max output tokens" type="number" required min="1" max="100000" value=${fields.max} onInput=${set('max')} />
          <${Field}
            label="Temperature"
            type="number"
            min="0"
            max="2"
            step="0.01"
            placeholder="default"
            value=${fields.temperature}
            onInput=${set('temperature')}
          />
          <${Field} label="Top P" type="number" min="0" max="1" step="0.01" placeholder="default" value=${fields.top} onInput=${set('top')} />
          <${Field} label="Reasoning effort">
            <select value=${fields.effort} onChange=${set('effort')}>
              ${EFFORTS.map(effort => html`<option key=${effort} value=${effort}>${effort === '' ? 'default' : effort}</option>`)}
            </select>
          <//>
        </div>
        <${Field} label="System prompt">
          <textarea rows="2" value=${fields.system} onInput=${set('system')}></textarea>
        <//>
        <${Field} label="Question">
          <textarea required rows="4" value=${fields.input} onInput=${set('input')}></textarea>
        <//>
        <datalist id="models">${models.map(id => html`<option key=${id} value=${id}></option>`)}</datalist>
        <div class="lanes models">
          ${fields.models.map(
            (model, index) => html`
              <${Field}
                key=${index}
                label=${index === 0 ? 'Model' : `Model ${index + 1}`}
                required
                list="models"
                value=${model}
                onInput=${setModel(index)}
              />
            `,
          )}
        </div>
        <div class="bar">
          <button type="submit" class="main" aria-disabled=${isRunning}>Send</button>
          <button type="button" disabled=${!isRunning} onClick=${() => running.current?.abort()}>Stop</button>
          <button
            type="button"
            disabled=${isRunning || fields.models.length >= MAX_MODELS}
            onClick=${() => resize([...fields.models, ''])}
          >
            Compare another model
          </button>
          ${
            fields.models.length > 1 &&
            html`
              <button type="button" disabled=${isRunning} onClick=${() => resize(fields.models.slice(0, -1))}>
                Remove a model
              </button>
            `
          }
          <span class="choice" role="group" aria-label="How answers are shown">
            ${VIEWS.map(
              ([name, text]) => html`
                <button key=${name} type="button" aria-pressed=${shown === name} onClick=${() => setShown(name)}>${text}</button>
              `,
            )}
          </span>
        </div>
      </form>
      <div class="lanes">
        ${answers.map(
          (answer, index) =>
            html`<${Answer} key=${index} at=${index} model=${fields.models[index] ?? ''} answer=${answer} shown=${shown} />`,
        )}
      </div>
      <${Snippets} body=${bodyOf(fields, fields.models[0])} />
    </section>
  `
}
