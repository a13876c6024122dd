/** The first view: current problems, cost, time to the first token and errors by model, and the latest requests. */
import { count, duration, percent, usd } from '../format.js'
import { html, useState } from '../html.js'
import { Empty, Figure, Table, useApi, useView, Waiting } from '../parts.js'
import { Charts, Range } from '../requests/charts.js'
import { List } from '../requests/list.js'
import { Health } from './problems.js'

const POLL_INTERVAL_MS = 3_000
/** Limits change slowly. */
const KEYS_POLL_INTERVAL_MS = 30_000
const LATEST_COUNT = 12

export function Home({ calls, live, memory }) {
  const { document, error } = useView(calls, 'summary', {}, POLL_INTERVAL_MS)
  const keys = useApi(calls, 'keys', { limit: 100 }, { everyMs: KEYS_POLL_INTERVAL_MS }).document?.data ?? []
  const [minutes, setMinutes] = useState(memory.minutes ?? 15)
  memory.minutes = minutes
  if (document === null) return html`<${Waiting} error=${error} />`
  const { money, requests, failed, first_token_ms: first, window_seconds: seconds } = document
  // After opening, the console starts with the latest requests of the ledger, so the window may be shorter.
  const window = seconds < 900 ? `last ${duration(seconds * 1000)}` : 'last 15 minutes'
  return html`
    <${Health} problems=${document.problems} keys=${keys} live=${live} error=${error} />
    <dl class="figures wide">
      <${Figure} name="Today (UTC)" value=${usd(money.today)} />
      <${Figure}
        name="This month"
        value=${usd(money.month)}
        note=${money.month_at_this_pace === null ? '' : `${usd(money.month_at_this_pace)} at this pace`}
      />
      ${money.credits_left !== null && html`<${Figure} name="Credits left" value=${usd(money.credits_left)} />`}
      <${Figure} name="Requests" value=${count(requests)} note=${window} />
      <${Figure} name="Failed" value=${requests === 0 ? '–' : percent(failed / requests)} note=${window} />
      <${Figure} name="First token" value=${duration(first.p50)} note=${`p95 ${duration(first.p95)}`} />
      <${Figure} name="Running now" value=${count(document.in_flight)} note=${`${count(document.open_streams)} streams`} />
    </dl>
    <div class="bar"><${Range} minutes=${minutes} onMinutes=${setMinutes} /></div>
    <${Charts} calls=${calls} live=${live} minutes=${minutes} />
    <div class="halves">
      <section aria-labelledby="models-heading">
        <h2 id="models-heading">Models, ${window}</h2>
        <${ModelTable} models=${document.models} />
      </section>
      <section aria-labelledby="latest-heading">
        <h2 id="latest-heading">Latest requests</h2>
        ${
          live.rows.length === 0
            ? html`<${Empty}>No requests yet. The <a href="#/playground">playground</a> sends one.<//>`
            : html`<${List}
                label="Latest requests"
                rows=${live.rows.slice(0, LATEST_COUNT)}
                chosen=${null}
                onChoose=${row => {
                  memory.chosen = row
                  location.hash = '#/requests'
                }}
              />`
        }
      </section>
    </div>
  `
}

function ModelTable({ models }) {
  if (models.length === 0) return html`<${Empty}>No requests in the last 15 minutes.<//>`
  const columns = [
    'Model',
    { name: 'Requests', number: true },
    { name: 'Failed', number: true },
    { name: 'First token p50', number: true },
    { name: 'p95', number: true },
    { name: 'Cost', number: true },
  ]
  return html`
    <${Table} label="Models of the last 15 minutes" columns=${columns}>
      ${models.map(
        ({ model, requests, failed, cost, first_token_ms: first }) => html`
          <tr key=${model}>
            <th scope="row">${model ?? 'others, or no model'}</th>
            <td class="number">${count(requests)}</td>
            <td class=${`number ${failed > 0 ? 'bad' : ''}`}>${failed === 0 ? '0' : `${count(failed)} (${percent(failed / requests)})`}</td>
            <td class="number">${duration(first.p50)}</td>
            <td class="number">${duration(first.p95)}</td>
            <td class="number">${usd(cost)}</td>
          </tr>
        `,
      )}
    <//>
  `
}
