/** The live list of requests, its charts, and the details of the selected request. */
import { Detail } from '../detail.js'
import { count } from '../format.js'
import { html, useLayoutEffect, useRef, useState } from '../html.js'
import { Empty, Filter, isTyping } from '../parts.js'
import { Charts, Range } from './charts.js'
import { List } from './list.js'
import { Search } from './search.js'

/** More rows would not help; the filter finds the others. */
const MAX_SHOWN_ROWS = 200

/** Two lists: the live one, and a search of the whole ledger. */
export function Requests({ calls, live, memory, asked = '' }) {
  const isLinked = memory.chosen != null || asked !== ''
  const [list, setList] = useState(isLinked ? 'live' : (memory.requests ?? 'live'))
  memory.requests = list
  const tab = (name, text) => html`
    <button type="button" aria-pressed=${list === name} onClick=${() => setList(name)}>${text}</button>
  `
  return html`
    <div class="choice" role="group" aria-label="Which requests">
      ${tab('live', 'Live')} ${tab('search', 'Search the ledger')}
    </div>
    ${
      list === 'live'
        ? html`<${LiveRequests} calls=${calls} live=${live} memory=${memory} asked=${asked} />`
        : html`<${Search} calls=${calls} memory=${memory} />`
    }
  `
}

/** @param asked the filter in the URL, as linked from other views */
function LiveRequests({ calls, live, memory, asked }) {
  const [minutes, setMinutes] = useState(memory.minutes ?? 15)
  memory.minutes = minutes
  const [filter, setFilter] = useState(asked)
  const [onlyFailures, setOnlyFailures] = useState(false)
  const [pausedRows, setPausedRows] = useState(null)
  // The first view may have selected one.
  const [chosen, setChosen] = useState(memory.chosen ?? null)
  memory.chosen = null
  const list = useRef(null)
  const rows = pausedRows ?? live.rows
  const matchingRows = rows.filter(row => matches(row, filter.trim().toLowerCase(), onlyFailures))
  const detail = chosen === null ? null : (live.rows.find(({ id }) => id === chosen.id) ?? chosen)

  const close = () => {
    setChosen(null)
    list.current?.querySelector(`[data-id="${CSS.escape(detail.id)}"]`)?.focus()
  }

  // Registered together with the rows, so that an immediate key works.
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
        <${Charts} calls=${calls} live=${live} minutes=${minutes} />
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
          <button type="button" aria-pressed=${pausedRows !== null} onClick=${() => setPausedRows(pausedRows === null ? rows : null)}>
            ${pausedRows === null ? 'Pause' : 'Resume'}
          </button>
          <${Range} minutes=${minutes} onMinutes=${setMinutes} />
          <span class="dim" role="status">${countText(matchingRows, rows, live)}</span>
        </div>
        ${
          matchingRows.length === 0
            ? html`<${EmptyList} live=${live} isFiltered=${rows.length > 0} />`
            : html`<${List}
                label="Last requests, newest first"
                list=${list}
                rows=${matchingRows.slice(0, MAX_SHOWN_ROWS)}
                chosen=${detail}
                onChoose=${setChosen}
              />`
        }
      </section>
      ${detail !== null && html`<${Detail} key=${detail.id} calls=${calls} row=${detail} onClose=${close} />`}
    </div>
  `
}

function EmptyList({ live, isFiltered }) {
  if (isFiltered) return html`<${Empty}>No request matches the filter.<//>`
  if (live.state === 'connecting') return html`<${Empty}>Loading …<//>`
  return html`<${Empty}>
    No requests yet. Send one to the public port, or open the <a href="#/playground">playground</a>: it is listed here within a second.
  <//>`
}

function countText(matchingRows, rows, live) {
  const listed = Math.min(matchingRows.length, MAX_SHOWN_ROWS)
  const parts = [listed === rows.length ? `${listed} requests` : `${listed} of ${rows.length} requests`]
  if (live.unlisted > 0) parts.push(`${count(live.unlisted)} more are not listed (too many per second)`)
  return parts.join(', ')
}

function matches(row, filter, onlyFailures) {
  if (onlyFailures && row.outcome === 'completed') return false
  if (filter === '') return true
  const providers = row.attempts.map(({ provider }) => provider)
  const texts = [row.id, row.model, row.provider, row.status, row.outcome, row.error, row.cause, ...providers]
  return filter.split(/\s+/).every(word =>
    texts.some(text =>
      String(text ?? '')
        .toLowerCase()
        .includes(word),
    ),
  )
}

/** Moves the focus in the list. Returns false if it is empty. */
function move(list, step) {
  const buttons = [...(list?.querySelectorAll('button[data-id]') ?? [])]
  if (buttons.length === 0) return false
  const index = buttons.indexOf(document.activeElement)
  const next = index === -1 ? 0 : Math.min(buttons.length - 1, Math.max(0, index + step))
  buttons[next].focus()
  return true
}
