/** Credits, API keys and end users, with what they spent today. Keys are shown by their masked label only. */
import { count, dateTime, text, usd } from './format.js'
import { html, useState } from './html.js'
import { Chip, Empty, Figure, Pages, Table, useView, Waiting } from './parts.js'

const PAGE = 50
/** Sums over the ledger: once in a while is enough. */
const EVERY_MS = 10_000

export function Accounts({ calls }) {
  return html`
    <${Credits} calls=${calls} />
    <${Keys} calls=${calls} />
    <${EndUsers} calls=${calls} />
  `
}

function Credits({ calls }) {
  const { document, error } = useView(calls, 'credits', {}, EVERY_MS)
  if (document === null) return html`<${Waiting} error=${error} />`
  const { total_credits: total, total_usage: used, today } = document.data
  return html`
    <section aria-labelledby="credits-heading">
      <h2 id="credits-heading">Credits</h2>
      <dl class="figures">
        <${Figure} name="spent today" value=${usd(today.usage)} />
        <${Figure} name="requests today" value=${count(today.requests)} />
        <${Figure} name="used in all" value=${usd(used)} />
        ${
          total !== 0 &&
          html`
            <${Figure} name="credits" value=${usd(total)} />
            <${Figure} name="left" value=${usd(total - used)} title="Counts only where credits.enforced is true" />
          `
        }
      </dl>
    </section>
  `
}

function Keys({ calls }) {
  const [offset, setOffset] = useState(0)
  const query = { offset, limit: PAGE, include_disabled: true }
  const { document, error } = useView(calls, 'keys', query, EVERY_MS)
  return html`
    <section aria-labelledby="keys-heading">
      <h2 id="keys-heading">API keys</h2>
      ${document === null ? html`<${Waiting} error=${error} />` : html`<${KeyTable} keys=${document.data} />`}
      ${
        document !== null &&
        html`<${Pages} label="keys" offset=${offset} limit=${PAGE} total=${document.total_count} onOffset=${setOffset} />`
      }
    </section>
  `
}

const KEY_COLUMNS = [
  'Name',
  'Key',
  'State',
  'Workspace',
  { name: 'Today', number: true },
  { name: 'In all', number: true },
  { name: 'Limit', number: true },
  { name: 'Left', number: true },
  'Expires',
]

function KeyTable({ keys }) {
  if (keys.length === 0) return html`<${Empty}>No keys yet. POST /v1/keys makes one.<//>`
  return html`
    <${Table} label="API keys" columns=${KEY_COLUMNS}>
      ${keys.map(
        key => html`
          <tr key=${key.hash}>
            <th scope="row">${key.name}</th>
            <td class="mono">${key.label}</td>
            <td>
              <${Chip} tone=${key.disabled ? 'warn' : 'good'}>${key.disabled ? 'disabled' : 'active'}<//>
              ${key.is_management_key && html` <${Chip}>management<//>`}
            </td>
            <td>${text(key.workspace_id)}</td>
            <td class="number">${usd(key.usage_daily)}</td>
            <td class="number">${usd(key.usage)}</td>
            <td class="number">${limitOf(key)}</td>
            <td class="number">${usd(key.limit_remaining)}</td>
            <td>${key.expires_at === null ? 'never' : dateTime(key.expires_at)}</td>
          </tr>
        `,
      )}
    <//>
  `
}

function limitOf({ limit, limit_reset: reset }) {
  if (limit === null) return 'none'
  return reset === null ? usd(limit) : `${usd(limit)} ${reset}`
}

function EndUsers({ calls }) {
  const [offset, setOffset] = useState(0)
  const query = { offset, limit: PAGE, include_inactive: true }
  const { document, error } = useView(calls, 'end-users', query, EVERY_MS)
  return html`
    <section aria-labelledby="users-heading">
      <h2 id="users-heading">End users</h2>
      ${document === null ? html`<${Waiting} error=${error} />` : html`<${UserTable} users=${document.data} />`}
      ${
        document !== null &&
        html`<${Pages} label="end users" offset=${offset} limit=${PAGE} total=${document.total_count} onOffset=${setOffset} />`
      }
    </section>
  `
}

const USER_COLUMNS = [
  'User',
  'State',
  { name: 'Requests today', number: true },
  { name: 'Spent today', number: true },
  'Since',
]

function UserTable({ users }) {
  if (users.length === 0) {
    return html`<${Empty}>No end users yet. POST /v1/end-users registers one, by the "user" of your requests.<//>`
  }
  return html`
    <${Table} label="End users" columns=${USER_COLUMNS}>
      ${users.map(
        ({ user, is_active: isActive, today, created_at: since }) => html`
          <tr key=${user}>
            <th scope="row">${user}</th>
            <td><${Chip} tone=${isActive ? 'good' : 'warn'}>${isActive ? 'active' : 'inactive'}<//></td>
            <td class="number">${count(today.requests)}</td>
            <td class="number">${usd(today.usage)}</td>
            <td>${dateTime(since)}</td>
          </tr>
        `,
      )}
    <//>
  `
}
