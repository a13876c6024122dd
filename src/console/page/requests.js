/** The live list of requests, its charts, and the details of the selected request. */
import { Charts } from './charts.js'
import { Detail } from './detail.js'
import { clock, count, duration, text, usd } from './format.js'
import { html, useLayoutEffect, useRef, useState } from './html.js'
import { Attempts, Status } from './outcome.js'
import { Chip, Empty, Filter, isTyping } from './parts.js'

/** More rows at once help nobody; the filter finds the others. */
const SHOWN_MAX = 200

const COLUMNS = [
  ['Time', ''],
  ['Status', ''],
  ['Model', ''],
  ['Provider', ''],
  ['First token', 'number'],
  ['Total', 'number'],
  ['Tokens', 'number'],
  ['Cost', 'number'],
  ['Error', ''],
]

export function Requests({ calls, live, tick }) {
  const [filter, setFilter] = useState('')
  const [onlyFailures, setOnlyFailures] = useState(false)
  const [held, setHeld] = useState(null)
  const [chosen, setChosen] = useState(null)
  const list = useRef(null)
  const rows = held ?? live.rows
  const shown = rows.filter(row => isShown(row, filter.trim().toLowerCase(), onlyFailures))
  const detail = chosen === null ? null : (live.rows.find(({ id }) => id === chosen.id) ?? chosen)

  const close = () => {
    setChosen(null)
    list.current?.querySelector(`[data-id="${CSS.escape(detail.id)}"]`)?.focus()
  }

  // With the rows: a key that follows at once is heard.
  useLayoutEffect(() => {
    const onKey = event => {
      if (event.ctrlKey || event.metaKey || event.altKey || isTyping(event)) return
      const step = { j: 1, ArrowDown: 1, k: -1, ArrowUp: -1 }[event.key]
      if (step === undefined) return
      if (move(list.current, step)) event.preventDefault()
    }
    addEventListener('keydown', onKey)
    return () => removeEventListener('keydown', onKey)
  }, [])

  return html`
    <div class=${detail === null ? 'requests' : 'requests with-detail'}>
      <section aria-label="Requests">
        <${Charts} live=${live} tick=${tick} />
        <div class="bar">
          <${Filter} label="Filter" hint="model, provider, status, error" value=${filter} onValue=${setFilter} />
          <label class="check">
            <input
              type="checkbox"
              checked=${onlyFailures}
              onChange=${event => setOnlyFailures(event.currentTarget.checked)}
            />
            Failures only
          </label>
          <button type="button" aria-pressed=${held !== null} onClick=${() => setHeld(held === null ? rows : null)}>
            ${held === null ? 'Hold' : 'Go on'}
          </button>
          <span class="dim" role="status">${told(shown, rows, live)}</span>
        </div>
        ${
          shown.length === 0
            ? html`<${Nothing} live=${live} isFiltered=${rows.length > 0} />`
            : html`<${List} list=${list} rows=${shown.slice(0, SHOWN_MAX)} chosen=${detail} onChoose=${setChosen} />`
        }
      </section>
      ${detail !== null && html`<${Detail} key=${detail.id} calls=${calls} row=${detail} onClose=${close} />`}
    </div>
  `
}

function List({ list, rows, chosen, onChoose }) {
  return html`
    <table class="live" aria-label="Last requests, newest first">
      <thead>
        <tr>${COLUMNS.map(([name, kind]) => html`<th scope="col" key=${name} class=${kind}>${name}</th>`)}</tr>
      </thead>
      <tbody ref=${list}>
        ${rows.map(row => {
          const isChosen = chosen?.id === row.id
          return html`
            <tr key=${row.id} class=${isChosen ? 'chosen' : ''} onClick=${() => onChoose(row)}>
              <td class="time">
                <button
                  type="button"
                  class="link"
                  data-id=${row.id}
                  aria-expanded=${isChosen}
                  aria-label=${`${clock(row.at)}, details of ${row.id}`}
                  onClick=${event => {
                    event.stopPropagation()
                    onChoose(row)
                  }}
                >
                  ${clock(row.at)}
                </button>
              </td>
              <td class="status"><${Status} row=${row} /></td>
              <td class="model">${text(row.model)}${row.isInner && html` <${Chip}>inner<//>`}</td>
              <td class="provider"><${Attempts} row=${row} /></td>
              <td class="number first" data-name="first token">${duration(row.firstTokenMs)}</td>
              <td class="number total" data-name="total">${duration(row.durationMs)}</td>
              <td class="number tokens" data-name="tokens">${count(row.inputTokens)} → ${count(row.outputTokens)}</td>
              <td class="number cost" data-name="cost">${usd(row.cost)}</td>
              <td class="error">${errorOf(row)}</td>
            </tr>
          `
        })}
      </tbody>
    </table>
  `
}

function errorOf({ error, cause }) {
  if (error === null) return ''
  return cause === null ? error : `${error}: ${cause}`
}

function Nothing({ live, isFiltered }) {
  if (isFiltered) return html`<${Empty}>No request fits the filter.<//>`
  if (live.state === 'connecting') return html`<${Empty}>Reading …<//>`
  return html`<${Empty}>
    No requests yet. Send one to the public port, or open <a href="#/try">Try it</a>: it is listed here within a second.
  <//>`
}

function told(shown, rows, live) {
  const listed = Math.min(shown.length, SHOWN_MAX)
  const parts = [listed === rows.length ? `${listed} requests` : `${listed} of ${rows.length} requests`]
  if (live.unlisted > 0) parts.push(`${count(live.unlisted)} more came too fast to list`)
  return parts.join(', ')
}

function isShown(row, filter, onlyFailures) {
  if (onlyFailures && row.outcome === 'completed') return false
  if (filter === '') return true
  const providers = row.attempts.map(({ provider }) => provider)
  const texts = [row.id, row.model, row.provider, row.status, row.outcome, row.error, row.cause, ...providers]
  return filter.split(/\s+/).every(word =>
    texts.some(each =>
      String(each ?? '')
        .toLowerCase()
        .includes(word),
    ),
  )
}

/** Moves the focus through the list. False: there is none. */
function move(list, step) {
  const buttons = [...(list?.querySelectorAll('button[data-id]') ?? [])]
  if (buttons.length === 0) return false
  const at = buttons.indexOf(document.activeElement)
  const next = at === -1 ? 0 : Math.min(buttons.length - 1, Math.max(0, at + step))
  buttons[next].focus()
  return true
}
