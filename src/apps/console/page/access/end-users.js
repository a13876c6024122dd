/** Registered end users and how much each spent today: adds, weights and disables them. */
import { count, dateTime, usd } from '../format.js'
import { Check, Field, FormDialog } from '../forms.js'
import { html, useState } from '../html.js'
import { Chip, Empty, PAGE, Paged, RowButton, Table, useView } from '../parts.js'
import { RateFields, rateLimitOf, ratesText } from './rate-fields.js'

const POLL_INTERVAL_MS = 10_000
const COLUMNS = [
  'User',
  'State',
  { name: 'Weight', number: true },
  'Rate limit',
  { name: 'Requests today', number: true },
  { name: 'Spent today', number: true },
  'Since',
  '',
]

export function EndUsers({ calls, version, onChanged }) {
  const [offset, setOffset] = useState(0)
  const [open, setOpen] = useState(null)
  // The version is not a parameter; it makes the page reload the list.
  const query = { offset, limit: PAGE, include_inactive: true, version }
  const list = useView(calls, 'end-users', query, POLL_INTERVAL_MS)
  const close = () => setOpen(null)
  const save = async ({ user, weight, is_active, ...values }) => {
    const record = open.record
    const settings = { weight: Number(weight), rate_limit: rateLimitOf(values) }
    await (record === undefined
      ? calls.api('POST', 'end-users', { body: { user, ...settings } })
      : calls.api('PATCH', 'end-users', { query: { user: record.user }, body: { ...settings, is_active } }))
    onChanged()
    close()
  }
  const { record } = open ?? {}
  return html`
    <section aria-labelledby="users-heading">
      <div class="bar">
        <h2 id="users-heading">End users</h2>
        <button type="button" onClick=${() => setOpen({})}>Register an end user</button>
      </div>
      <${Paged}
        label="end users"
        asked=${list}
        offset=${offset}
        onOffset=${setOffset}
        draw=${({ data }) => html`<${UserTable} users=${data} onOpen=${setOpen} />`}
      />
      ${
        open !== null &&
        html`
          <${FormDialog}
            title=${record === undefined ? 'Register an end user' : `Change ${record.user}`}
            send=${record === undefined ? 'Register' : 'Save'}
            onSend=${save}
            onClose=${close}
          >
            ${
              record === undefined
                ? html`<${Field} label="User" name="user" required maxlength="256" hint='As requests have it in "user"' />`
                : html`<${Check} label="Active" name="is_active" checked=${record.is_active} />`
            }
            <${Field}
              label="Weight"
              name="weight"
              type="number"
              min="1"
              max="100"
              required
              value=${record?.weight ?? 1}
              hint="Its share of an API key that is at its limit"
            />
            <${RateFields} record=${record} />
          <//>
        `
      }
    </section>
  `
}

function UserTable({ users, onOpen }) {
  if (users.length === 0) {
    return html`<${Empty}>No end users yet. Register one with the value of "user" in your requests.<//>`
  }
  return html`
    <${Table} label="End users" columns=${COLUMNS}>
      ${users.map(
        record => html`
          <tr key=${record.user}>
            <th scope="row">${record.user}</th>
            <td><${Chip} tone=${record.is_active ? 'good' : 'warn'}>${record.is_active ? 'active' : 'inactive'}<//></td>
            <td class="number">${count(record.weight ?? 1)}</td>
            <td>${ratesText(record.rate_limit) || 'none'}</td>
            <td class="number">${count(record.today.requests)}</td>
            <td class="number">${usd(record.today.usage)}</td>
            <td>${dateTime(record.created_at)}</td>
            <td class="actions">
              <${RowButton} does="Change" of=${`end user ${record.user}`} onClick=${() => onOpen({ record })} />
            </td>
          </tr>
        `,
      )}
    <//>
  `
}
