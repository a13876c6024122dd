/** Workspaces: creates, changes and deletes them. */
import { dateTime, text } from '../format.js'
import { Confirm, Field, FormDialog, listOrNull } from '../forms.js'
import { html, useState } from '../html.js'
import { Chip, Empty, PAGE, Paged, RowButton, Table, useApi } from '../parts.js'
import { CacheField, cacheOf } from './cache-field.js'
import { LoopField, loopsOf } from './loop-field.js'
import { RateFields, rateLimitOf, ratesText } from './rate-fields.js'

const COLUMNS = ['Workspace', 'Slug', 'Description', 'Tools that are off', 'Rate limit', 'Since', '']

export function Workspaces({ calls, names, version, onChanged }) {
  const [offset, setOffset] = useState(0)
  const [open, setOpen] = useState(null)
  const list = useApi(calls, 'workspaces', { offset, limit: PAGE }, { version })
  const close = () => setOpen(null)
  const onDone = () => {
    onChanged()
    close()
  }
  const save = async ({ name, slug, description, disabled_server_tools: tools, ...values }) => {
    const body = {
      name,
      slug,
      description: description === '' ? null : description,
      disabled_server_tools: listOrNull(tools),
      rate_limit: rateLimitOf(values),
      loops: loopsOf(values.loops, open.workspace),
      cache: cacheOf(values.cache, open.workspace),
    }
    const id = open.workspace?.id
    await (id === undefined
      ? calls.api('POST', 'workspaces', { body })
      : calls.api('PATCH', `workspaces/${encodeURIComponent(id)}`, { body }))
    onDone()
  }
  const remove = async () => {
    await calls.api('DELETE', `workspaces/${encodeURIComponent(open.workspace.id)}`)
    onDone()
  }
  const disable = async () => {
    for (const { hash } of keysOf(names, open.workspace))
      await calls.api('PATCH', `keys/${hash}`, { body: { disabled: true } })
    onDone()
  }
  const { workspace } = open ?? {}
  return html`
    <section aria-labelledby="workspaces-heading">
      <div class="bar">
        <h2 id="workspaces-heading">Workspaces</h2>
        <button type="button" onClick=${() => setOpen({ what: 'edit' })}>New workspace</button>
      </div>
      <p class="dim">
        The budget of a workspace's keys, and the models they may use, are rules of
        ${' '}<a href="#/guardrails">its default guardrail</a>.
      </p>
      <${Paged}
        label="workspaces"
        asked=${list}
        once
        offset=${offset}
        onOffset=${setOffset}
        draw=${({ data }) => html`<${WorkspaceTable} workspaces=${data} names=${names} onOpen=${setOpen} />`}
      />
      ${
        open?.what === 'edit' &&
        html`
          <${FormDialog}
            title=${workspace === undefined ? 'New workspace' : `Change ${workspace.name}`}
            send=${workspace === undefined ? 'Create' : 'Save'}
            onSend=${save}
            onClose=${close}
          >
            <${Field} label="Name" name="name" required maxlength="100" value=${workspace?.name ?? ''} />
            <${Field}
              label="Slug"
              name="slug"
              required
              maxlength="50"
              pattern="[a-z0-9]+(-[a-z0-9]+)*"
              value=${workspace?.slug ?? ''}
              hint="Small letters, digits, single hyphens"
            />
            <${Field} label="Description" name="description" maxlength="500" value=${workspace?.description ?? ''} />
            <${Field}
              label="Server tools that are off"
              name="disabled_server_tools"
              value=${(workspace?.disabled_server_tools ?? []).join(', ')}
              hint="Separated by commas, for example gateway:web_search"
            />
            <${RateFields} record=${workspace} without="For the sum of its keys. Empty: no limit" />
            <${LoopField} record=${workspace} without="no policy" />
            <${CacheField} record=${workspace} without="as the configuration says" />
          <//>
        `
      }
      ${
        open?.what === 'disable' &&
        html`
          <${Confirm} title=${`Disable the keys of ${workspace.name}?`} send="Disable them" onSend=${disable} onClose=${close}>
            ${keysOf(names, workspace).length} API keys are refused with 401 within a second. Each can be enabled
            again, in the list of keys. Nothing else of the workspace changes.
          <//>
        `
      }
      ${
        open?.what === 'delete' &&
        html`
          <${Confirm} title=${`Delete ${workspace.name}?`} send="Delete" onSend=${remove} onClose=${close}>
            Its API keys are disabled for good, its own credentials are wiped, its guardrails and files are deleted. Its
            usage stays in the ledger.
          <//>
        `
      }
    </section>
  `
}

/** Keys of the workspace that can be used. */
function keysOf(names, { id }) {
  return [...names.keys.values()].filter(
    key => key.workspace_id === id && !key.disabled && !key.is_management_key,
  )
}

function WorkspaceTable({ workspaces, names, onOpen }) {
  if (workspaces.length === 0) return html`<${Empty}>No workspaces. Keys need one.<//>`
  return html`
    <${Table} label="Workspaces" columns=${COLUMNS}>
      ${workspaces.map(workspace => {
        const open = what => () => onOpen({ what, workspace })
        const isBare = keysOf(names, workspace).length === 0
        return html`
          <tr key=${workspace.id}>
            <td><b>${workspace.name}</b>${workspace.is_default && html` <${Chip}>default<//>`}</td>
            <td class="mono">${workspace.slug}</td>
            <td>${text(workspace.description)}</td>
            <td>${text((workspace.disabled_server_tools ?? []).join(', '))}</td>
            <td>${ratesText(workspace.rate_limit) || 'none'}</td>
            <td>${dateTime(workspace.created_at)}</td>
            <td class="actions">
              <${RowButton} does="Change" of=${`workspace ${workspace.name}`} onClick=${open('edit')} />
              <${RowButton} does="Disable keys" of=${`of ${workspace.name}`} disabled=${isBare} onClick=${open('disable')} />
              <${RowButton} does="Delete" of=${`workspace ${workspace.name}`} onClick=${open('delete')} />
            </td>
          </tr>
        `
      })}
    <//>
  `
}
