/** The form for a new or changed key. Without `disabled`, which has buttons, and the numbers of `loops` and `cache`. */
import { Check, Field, FormDialog, numberOrNull, Select } from '../forms.js'
import { html, useState } from '../html.js'
import { CacheField, cacheOf, sameCache } from './cache-field.js'
import { LoopField, loopsOf, sameLoops } from './loop-field.js'
import { RateFields, rateLimitOf, sameRates } from './rate-fields.js'

const RESETS = [
  ['', 'in total'],
  ['daily', 'each day'],
  ['weekly', 'each week'],
  ['monthly', 'each month'],
]
const ROLES = [
  ['viewer', 'viewer: sees everything, changes nothing'],
  ['operator', 'operator: API keys, workspaces, guardrails, end users'],
  ['admin', 'admin: everything'],
]

/** @param record the key to change; undefined: a new one. `onDone` gets the next thing to show. */
export function KeyForm({ calls, names, record, onDone, onClose }) {
  const isNew = record === undefined
  const [isManagement, setManagement] = useState(record?.is_management_key ?? false)
  const save = async values => {
    const settings = {
      name: values.name,
      expires_at: instantOf(values.expires_at),
      ...(isManagement
        ? { role: values.role }
        : {
            limit: numberOrNull(values.limit),
            limit_reset: values.limit_reset === '' ? null : values.limit_reset,
            include_byok_in_limit: values.include_byok_in_limit,
            rate_limit: rateLimitOf(values),
            loops: loopsOf(values.loops, record),
            cache: cacheOf(values.cache, record),
            trace_trusted: values.trace_trusted,
          }),
    }
    if (!isNew) {
      await calls.api('PATCH', `keys/${record.hash}`, { body: changesOf(record, settings) })
      return onDone()
    }
    const { key, data } = await calls.api('POST', 'keys', {
      body: {
        ...settings,
        ...(isManagement || values.workspace_id === '' ? {} : { workspace_id: values.workspace_id }),
        ...(values.creator_user_id === '' ? {} : { creator_user_id: values.creator_user_id }),
      },
    })
    onDone({ what: 'secret', title: `The new key ${data.name}`, secret: key })
  }
  const workspaces = [...names.workspaces.values()].map(({ id, name }) => [id, name])
  return html`
    <${FormDialog}
      title=${isNew ? 'New key' : `Change ${record.name}`}
      send=${isNew ? 'Create' : 'Save'}
      onSend=${save}
      onClose=${onClose}
    >
      <${Field} label="Name" name="name" required maxlength="200" value=${record?.name ?? ''} />
      ${
        isNew &&
        html`
          <${Check}
            label="Management key: for this console and the management API, not for requests to models"
            checked=${isManagement}
            onChange=${event => setManagement(event.currentTarget.checked)}
          />
        `
      }
      ${
        isManagement
          ? html`
              <${Field} label="Role">
                <${Select} name="role" value=${record === undefined ? 'viewer' : (record.role ?? 'admin')} options=${ROLES} />
              <//>
            `
          : html`<${ApiKeyFields} record=${record} />`
      }
      <${Field}
        label="Expires"
        name="expires_at"
        type="datetime-local"
        step="1"
        value=${localOf(record?.expires_at ?? null)}
        hint="In the time zone of this browser. Empty: never"
      />
      ${
        isNew &&
        !isManagement &&
        html`
          <${Field} label="Workspace">
            <${Select} name="workspace_id" value="" options=${[['', 'the default one'], ...workspaces]} />
          <//>
        `
      }
      ${isNew && html`<${Field} label="Member" name="creator_user_id" maxlength="256" hint="The owner of the key, for budgets of members" />`}
    <//>
  `
}

/** Limits and traces, which management keys do not have. */
function ApiKeyFields({ record }) {
  return html`
    <${Field}
      label="Limit in USD"
      name="limit"
      type="number"
      min="0"
      step="0.000001"
      value=${record?.limit ?? ''}
      hint="Empty: no limit"
    />
    <${Field} label="Limit period"><${Select} name="limit_reset" value=${record?.limit_reset ?? ''} options=${RESETS} /><//>
    <${Check}
      label="Requests on BYOK credentials count too"
      name="include_byok_in_limit"
      checked=${record?.include_byok_in_limit ?? false}
    />
    <${RateFields} record=${record} without="Empty: as the configuration says" />
    <${LoopField} record=${record} without="as the workspace says" />
    <${CacheField} record=${record} without="as the workspace says" />
    <${Check}
      label="The sampled flag of the traceparent header decides which traces are kept"
      name="trace_trusted"
      checked=${record?.trace_trusted ?? false}
    />
  `
}

/** The fields that differ: a key may not even send its own limits. */
function changesOf(record, settings) {
  const same = (name, value) =>
    name === 'rate_limit'
      ? sameRates(record.rate_limit, value)
      : name === 'loops'
        ? sameLoops(record.loops, value)
        : name === 'cache'
          ? sameCache(record.cache, value)
          : name === 'expires_at'
            ? localOf(record.expires_at) === localOf(value)
            : // A management key without a role is an admin.
              (record[name] ?? (name === 'role' ? 'admin' : null)) === value
  return Object.fromEntries(Object.entries(settings).filter(([name, value]) => !same(name, value)))
}

function instantOf(local) {
  return local === '' ? null : new Date(local).toISOString()
}

/** In the form of time inputs: 2026-11-23T12:34:56. */
function localOf(instant) {
  if (instant === null) return ''
  const date = new Date(instant)
  return new Date(date.getTime() - date.getTimezoneOffset() * 60_000).toISOString().slice(0, 19)
}
