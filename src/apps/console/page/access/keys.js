/** API keys: creates, limits, disables and deletes them. Only a new key is shown, and only once. */
import { dateTime, usd } from '../format.js'
import { Confirm, Field, FormDialog, Secret, Select } from '../forms.js'
import { html, useState } from '../html.js'
import { workspaceName } from '../names.js'
import { Chip, Empty, PAGE, Paged, RowButton, Share, Table, useApi } from '../parts.js'
import { KeyForm } from './key-form.js'
import { ratesText } from './rate-fields.js'

/** Seconds for which old secrets stay valid after a rotation. */
const OVERLAPS = [
  ['0', 'not at all: it has leaked'],
  ['3600', 'an hour'],
  ['86400', 'a day'],
  ['604800', 'a week'],
  ['2592000', '30 days'],
]
const POLL_INTERVAL_MS = 10_000

const COLUMNS = [
  'Name',
  'State',
  'Limit',
  { name: 'Today', number: true },
  { name: 'This month', number: true },
  { name: 'All', number: true },
  'Workspace',
  'Key',
  'Expires',
  '',
]

export function Keys({ calls, names, version, onChanged }) {
  const [offset, setOffset] = useState(0)
  const [open, setOpen] = useState(null)
  const query = { offset, limit: PAGE, include_disabled: true }
  const list = useApi(calls, 'keys', query, { version, everyMs: POLL_INTERVAL_MS })
  const close = () => setOpen(null)
  const onDone = next => {
    onChanged()
    setOpen(next ?? null)
  }
  const act = (method, key, body) => async () => {
    await calls.api(method, `keys/${key.hash}`, { body })
    onDone()
  }
  const rotate = key => async values => {
    const body = { overlap_seconds: Number(values.overlap_seconds) }
    const { key: secret, data } = await calls.api('POST', `keys/${key.hash}/rotate`, { body })
    onDone({ what: 'secret', title: `The new secret of ${data.name}`, secret })
  }
  return html`
    <section aria-labelledby="keys-heading">
      <div class="bar">
        <h2 id="keys-heading">API keys</h2>
        <button type="button" class="main" onClick=${() => setOpen({ what: 'create' })}>New key</button>
      </div>
      <${Paged}
        label="keys"
        asked=${list}
        offset=${offset}
        onOffset=${setOffset}
        draw=${({ data }) => html`<${KeyTable} keys=${data} names=${names} onOpen=${setOpen} />`}
      />
      ${(open?.what === 'create' || open?.what === 'edit') && html`<${KeyForm} calls=${calls} names=${names} record=${open.key} onDone=${onDone} onClose=${close} />`}
      ${open?.what === 'secret' && html`<${Secret} title=${open.title} secret=${open.secret} onClose=${close} />`}
      ${
        open?.what === 'rotate' &&
        html`
          <${FormDialog} title=${`Rotate ${open.key.name}`} send="Rotate" onSend=${rotate(open.key)} onClose=${close}>
            <p>The key gets a new secret, and keeps its name, limits and spending.</p>
            <${Field} label="The current secrets keep working for">
              <${Select} name="overlap_seconds" value="86400" options=${OVERLAPS} />
            <//>
          <//>
        `
      }
      ${
        open?.what === 'disable' &&
        html`
          <${Confirm}
            title=${`Disable ${open.key.name}?`}
            send="Disable"
            onSend=${act('PATCH', open.key, { disabled: true })}
            onClose=${close}
          >
            Within a second, its requests are rejected with 401 and running ones end. It can be enabled again.
          <//>
        `
      }
      ${
        open?.what === 'enable' &&
        html`
          <${Confirm}
            title=${`Enable ${open.key.name}?`}
            send="Enable"
            onSend=${act('PATCH', open.key, { disabled: false })}
            onClose=${close}
          >
            It works again at once.
          <//>
        `
      }
      ${
        open?.what === 'delete' &&
        html`
          <${Confirm}
            title=${`Delete ${open.key.name}?`}
            send="Delete"
            onSend=${act('DELETE', open.key)}
            onClose=${close}
          >
            The key never works again. Its usage stays in the ledger.
          <//>
        `
      }
    </section>
  `
}

function KeyTable({ keys, names, onOpen }) {
  if (keys.length === 0) return html`<${Empty}>No keys yet. "New key" makes one.<//>`
  return html`
    <${Table} label="API keys" columns=${COLUMNS}>
      ${keys.map(key => {
        const open = what => () => onOpen({ what, key })
        const toggle = key.disabled ? 'enable' : 'disable'
        return html`
          <tr key=${key.hash}>
            <th scope="row">
              ${key.is_management_key ? key.name : html`<a href=${`#/usage?${key.hash}`} title="Its usage">${key.name}</a>`}
            </th>
            <td>
              <${State} record=${key} />
              ${key.is_management_key && html` <${Chip}>${key.role ?? 'management'}<//>`}
            </td>
            <td><${Limit} record=${key} /></td>
            <td class="number">${usd(key.usage_daily)}</td>
            <td class="number">${usd(key.usage_monthly)}</td>
            <td class="number">${usd(key.usage)}</td>
            <td>${workspaceName(names, key.workspace_id)}</td>
            <td class="mono">${key.label}</td>
            <td>${key.expires_at === null ? 'never' : dateTime(key.expires_at)}</td>
            <td class="actions">
              <${RowButton} does="Change" of=${key.name} onClick=${open('edit')} />
              <${RowButton} does="Rotate" of=${key.name} onClick=${open('rotate')} />
              <button type="button" aria-label=${`${toggle} ${key.name}`} onClick=${open(toggle)}>
                ${key.disabled ? 'Enable' : 'Disable'}
              </button>
              <${RowButton} does="Delete" of=${key.name} onClick=${open('delete')} />
            </td>
          </tr>
        `
      })}
    <//>
  `
}

/** A key that cannot be used now is not shown as active. */
function State({ record: { disabled, limit, limit_remaining: left } }) {
  if (disabled) return html`<${Chip} tone="warn">disabled<//>`
  if (limit !== null && left <= 0) return html`<${Chip} tone="bad">limit used up<//>`
  return html`<${Chip} tone="good">active<//>`
}

function Limit({ record: { limit, limit_reset: reset, limit_remaining: left, rate_limit: rates } }) {
  if (limit === null && rates === null) return 'none'
  return html`
    ${limit !== null && html`<${Share} limit=${limit} left=${left} reset=${reset} label="Used of the limit" />`}
    ${rates !== null && html`<span class="dim">${ratesText(rates)}</span>`}
  `
}
