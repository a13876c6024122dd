/** Provider credentials of a workspace (BYOK): adds, changes, disables and deletes them. A key is never shown. */
import { dateTime, text } from '../format.js'
import { Check, Confirm, Field, FormDialog, listOrNull, Select } from '../forms.js'
import { html, useState } from '../html.js'
import { KeyCheck } from '../key-check.js'
import { Chip, Empty, PAGE, Paged, RowButton, Table, useApi } from '../parts.js'

const COLUMNS = ['Provider', 'Key', 'Name', 'State', 'For', 'Since', '']

export function Credentials({ calls, names, version, onChanged }) {
  const [offset, setOffset] = useState(0)
  const [chosen, setChosen] = useState('')
  const [open, setOpen] = useState(null)
  const workspaces = [...names.workspaces.values()]
  const workspace = names.workspaces.has(chosen)
    ? chosen
    : (workspaces.find(candidate => candidate.is_default) ?? workspaces[0])?.id
  // The selected workspace may have been deleted.
  const isKnown = workspace !== undefined && names.version === version
  const query = { offset, limit: PAGE, ...(workspace === undefined ? {} : { workspace_id: workspace }) }
  const list = useApi(calls, isKnown ? 'byok' : null, query, { version })
  const close = () => setOpen(null)
  const onDone = () => {
    onChanged()
    close()
  }
  const remove = async () => {
    await calls.api('DELETE', `byok/${open.credential.id}`)
    onDone()
  }
  return html`
    <section aria-labelledby="credentials-heading">
      <div class="bar">
        <h2 id="credentials-heading">Provider credentials (BYOK)</h2>
        <label>
          <span class="dim">Workspace </span>
          <${Select}
            value=${workspace}
            options=${workspaces.map(({ id, name }) => [id, name])}
            onChange=${event => setChosen(event.currentTarget.value)}
          />
        </label>
        <button type="button" disabled=${workspace === undefined} onClick=${() => setOpen({ what: 'edit' })}>
          New credential
        </button>
      </div>
      <${Paged}
        label="credentials"
        asked=${list}
        once
        offset=${offset}
        onOffset=${setOffset}
        draw=${({ data }) => html`<${CredentialTable} credentials=${data} onOpen=${setOpen} />`}
      />
      ${
        open?.what === 'edit' &&
        html`<${CredentialForm} calls=${calls} workspace=${workspace} record=${open.credential} onDone=${onDone} onClose=${close} />`
      }
      ${
        open?.what === 'try' &&
        html`<${KeyCheck} calls=${calls} provider=${open.credential.provider} credential=${open.credential} onClose=${close} />`
      }
      ${
        open?.what === 'delete' &&
        html`
          <${Confirm} title="Delete the credential?" send="Delete" onSend=${remove} onClose=${close}>
            The key of ${open.credential.provider} is overwritten. Requests then use other credentials, or those of the
            gateway.
          <//>
        `
      }
    </section>
  `
}

function CredentialTable({ credentials, onOpen }) {
  if (credentials.length === 0) {
    return html`<${Empty}>No credentials yet: requests use the credentials of the gateway and are billed by it.<//>`
  }
  return html`
    <${Table} label="Provider credentials (BYOK)" columns=${COLUMNS}>
      ${credentials.map(credential => {
        const subject = `credential ${credential.name ?? credential.label}`
        const open = what => () => onOpen({ what, credential })
        return html`
          <tr key=${credential.id}>
            <td>${credential.provider}</td>
            <td class="mono">${credential.label}</td>
            <td>${text(credential.name)}</td>
            <td>
              <${Chip} tone=${credential.disabled ? 'warn' : 'good'}>${credential.disabled ? 'disabled' : 'active'}<//>
              ${credential.is_required && html` <${Chip}>required<//>`}
              ${credential.is_fallback && html` <${Chip}>fallback<//>`}
              ${credential.is_byok_only && html` <${Chip}>own only<//>`}
            </td>
            <td>${restrictionOf(credential)}</td>
            <td>${dateTime(credential.created_at)}</td>
            <td class="actions">
              <${RowButton} does="Try" of=${subject} onClick=${open('try')} />
              <${RowButton} does="Change" of=${subject} onClick=${open('edit')} />
              <${RowButton} does="Delete" of=${subject} onClick=${open('delete')} />
            </td>
          </tr>
        `
      })}
    <//>
  `
}

function restrictionOf({ allowed_models: models, allowed_api_key_hashes: keys, allowed_user_ids: users }) {
  const parts = [
    models == null ? '' : models.join(', '),
    keys == null ? '' : `${keys.length} keys`,
    users == null ? '' : `${users.length} end users`,
  ].filter(part => part !== '')
  return parts.length === 0 ? 'all requests' : parts.join('; ')
}

function CredentialForm({ calls, workspace, record, onDone, onClose }) {
  const isNew = record === undefined
  const { document: providers } = useApi(calls, isNew ? 'providers' : null)
  const save = async values => {
    const settings = {
      name: values.name === '' ? null : values.name,
      allowed_models: listOrNull(values.allowed_models),
      disabled: values.disabled,
      is_required: values.is_required,
      is_fallback: values.is_fallback,
      is_byok_only: values.is_byok_only,
      ...(values.key === '' ? {} : { key: values.key }),
    }
    await (isNew
      ? calls.api('POST', 'byok', {
          body: { ...settings, provider: values.provider, workspace_id: workspace },
        })
      : calls.api('PATCH', `byok/${record.id}`, { body: settings }))
    onDone()
  }
  return html`
    <${FormDialog}
      title=${isNew ? 'New credential' : `Change the credential ${record.name ?? record.label}`}
      send=${isNew ? 'Add' : 'Save'}
      onSend=${save}
      onClose=${onClose}
    >
      ${
        isNew &&
        html`
          <${Field} label="Provider" name="provider" required list="provider-slugs" />
          <datalist id="provider-slugs">
            ${(providers?.data ?? []).map(({ slug, name }) => html`<option key=${slug} value=${slug}>${name}</option>`)}
          </datalist>
        `
      }
      <${Field}
        label=${isNew ? 'Key' : 'New key'}
        name="key"
        type="password"
        required=${isNew}
        hint=${isNew ? 'Stored encrypted, and never shown again' : 'Empty: keep the current key'}
      />
      <${Field} label="Name" name="name" maxlength="200" value=${record?.name ?? ''} />
      <${Field}
        label="Only for these models"
        name="allowed_models"
        value=${(record?.allowed_models ?? []).join(', ')}
        hint="Separated by commas. Empty: all models"
      />
      <${Check} label="Required: no other credential is used" name="is_required" checked=${record?.is_required ?? false} />
      <${Check} label="Fallback: used only if others fail" name="is_fallback" checked=${record?.is_fallback ?? false} />
      <${Check} label="Own only: never use those of the gateway" name="is_byok_only" checked=${record?.is_byok_only ?? false} />
      <${Check} label="Disabled" name="disabled" checked=${record?.disabled ?? false} />
    <//>
  `
}
