/** A search over the whole ledger: by id, key, model, provider, end user, session, outcome, cost and time. */
import { Detail } from '../detail.js'
import { dateTime } from '../format.js'
import { Field, Select } from '../forms.js'
import { html, useEffect, useRef, useState } from '../html.js'
import { keyName, useNames } from '../names.js'
import { Empty } from '../parts.js'
import { rowOfGeneration } from './generation-row.js'
import { List } from './list.js'

const PAGE_SIZE = 50
/** More rows would not help; filters are better. */
const MAX_ROWS = 1_000

const OUTCOMES = [
  ['', 'all'],
  ['failed,aborted,incomplete', 'not completed'],
  ['completed', 'completed'],
  ['failed', 'failed'],
  ['aborted', 'client disconnected'],
  ['incomplete', 'incomplete'],
]

/** Hours before now. */
const TIME_RANGES = [
  ['', 'any time'],
  ['1', 'the last hour'],
  ['24', 'the last 24 hours'],
  ['168', 'the last 7 days'],
  ['own', 'between two times'],
]
const HOUR_MS = 3_600_000

const NO_FILTERS = {
  id: '',
  api_key_hash: '',
  model: '',
  provider: '',
  user_id: '',
  session_id: '',
  outcome: '',
  min_cost: '',
  when: '',
  created_after: '',
  created_before: '',
}
const NO_RESULT = { rows: null, lastId: null, error: null, isAsking: false }

export function Search({ calls, memory }) {
  const [fields, setFields] = useState(memory.search ?? NO_FILTERS)
  const [result, setResult] = useState(NO_RESULT)
  const [chosen, setChosen] = useState(null)
  const running = useRef(null)
  const list = useRef(null)
  const names = useNames(calls)
  memory.search = fields

  const search = async (after = undefined) => {
    running.current?.abort()
    const controller = new AbortController()
    running.current = controller
    const before = after === undefined ? [] : (result.rows ?? [])
    setResult({ ...result, error: null, isAsking: true })
    try {
      const { data, last_id: lastId = null } = await ask(calls, fields, after, controller.signal)
      setResult({ rows: [...before, ...data.map(rowOfGeneration)], lastId, error: null, isAsking: false })
    } catch (error) {
      if (!controller.signal.aborted) setResult({ ...result, error, isAsking: false })
    }
  }
  useEffect(() => {
    void search()
    return () => running.current?.abort()
  }, [calls])

  const set = name => event => setFields({ ...fields, [name]: event.currentTarget.value })
  const text = (name, label, rest = {}) =>
    html`<${Field} label=${label} type="search" value=${fields[name]} onInput=${set(name)} ...${rest} />`
  const keys = [...names.keys.keys()].map(hash => [hash, keyName(names, hash)])
  const close = () => {
    setChosen(null)
    list.current?.querySelector(`[data-id="${CSS.escape(chosen.id)}"]`)?.focus()
  }
  return html`
    <div class=${chosen === null ? 'requests' : 'requests with-detail'}>
      <section aria-label="Search the ledger">
        <form
          class="controls"
          onSubmit=${event => {
            event.preventDefault()
            void search()
          }}
        >
          ${text('id', 'Id', { placeholder: 'gen-…', 'data-filter': true })}
          <${Field} label="Key">
            <${Select} value=${fields.api_key_hash} options=${[['', 'All keys'], ...keys]} onChange=${set('api_key_hash')} />
          <//>
          ${text('model', 'Model')} ${text('provider', 'Provider')} ${text('user_id', 'End user')}
          ${text('session_id', 'Session')}
          <${Field} label="Outcome"><${Select} value=${fields.outcome} options=${OUTCOMES} onChange=${set('outcome')} /><//>
          ${text('min_cost', 'Cost from, USD', { type: 'number', min: '0', step: 'any' })}
          <${Field} label="When"><${Select} value=${fields.when} options=${TIME_RANGES} onChange=${set('when')} /><//>
          ${
            fields.when === 'own' &&
            html`
              ${text('created_after', 'From', { type: 'datetime-local', step: '1' })}
              ${text('created_before', 'Before', { type: 'datetime-local', step: '1' })}
            `
          }
          <button type="submit" class="main">Search</button>
          <button type="button" onClick=${() => setFields(NO_FILTERS)}>Clear</button>
        </form>
        ${result.error !== null && html`<p class="fault" role="alert">${result.error.message}</p>`}
        <p class="dim" role="status">${resultText(result)}</p>
        ${
          result.rows !== null &&
          (result.rows.length === 0
            ? html`<${Empty}>No record matches${result.lastId === null ? '' : ' so far'}.<//>`
            : html`<${List}
                label="Found requests, newest first"
                list=${list}
                rows=${result.rows}
                chosen=${chosen}
                onChoose=${setChosen}
                when=${dateTime}
              />`)
        }
        ${
          result.lastId !== null &&
          result.rows.length < MAX_ROWS &&
          html`
            <button type="button" aria-disabled=${result.isAsking} onClick=${() => void search(result.lastId)}>
              Search older records
            </button>
          `
        }
      </section>
      ${chosen !== null && html`<${Detail} key=${chosen.id} calls=${calls} row=${chosen} onClose=${close} />`}
    </div>
  `
}

async function ask(
  calls,
  { id, when, created_after: from, created_before: before, ...filters },
  after,
  signal,
) {
  if (id.trim() !== '') {
    const { data } = await calls.api('GET', 'generation', { query: { id: id.trim() }, signal })
    return { data: [data] }
  }
  const instant = local => (local === '' ? '' : new Date(local).toISOString())
  const first = when === '' || when === 'own' ? null : new Date(Date.now() - Number(when) * HOUR_MS)
  const query = {
    ...Object.fromEntries(Object.entries(filters).map(([name, value]) => [name, value.trim()])),
    created_after: first === null ? (when === 'own' ? instant(from) : '') : first.toISOString(),
    created_before: when === 'own' ? instant(before) : '',
    limit: PAGE_SIZE,
    after,
  }
  return await calls.api('GET', 'generations', { query, signal })
}

function resultText({ rows, lastId, isAsking }) {
  if (isAsking) return 'Searching …'
  if (rows === null) return ''
  if (lastId === null) return `${rows.length} requests, no others match`
  const oldest = rows.at(-1)
  return oldest === undefined ? 'None yet' : `${rows.length} requests, back to ${dateTime(oldest.at)}`
}
