/** A list of requests, newest first; each opens its details. */
import { clock, count, duration, text, usd } from '../format.js'
import { html } from '../html.js'
import { Attempts, Status } from '../outcome.js'
import { Chip } from '../parts.js'

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

/** `when`: formats the time of a request. */
export function List({ label, list, rows, chosen, onChoose, when = clock }) {
  return html`
    <table class="live" aria-label=${label}>
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
                  aria-label=${`${when(row.at)}, details of ${row.id}`}
                  onClick=${event => {
                    event.stopPropagation()
                    onChoose(row)
                  }}
                >
                  ${when(row.at)}
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
