/** The form for a new or changed guardrail: detectors, custom patterns, budget, models and providers. */
import { Field, FormDialog, listOrNull, numberOrNull, Select } from '../forms.js'
import { html } from '../html.js'
import { guardrailName } from '../names.js'

const DETECTORS = [
  'email',
  'phone',
  'ssn',
  'credit-card',
  'ip-address',
  'secrets',
  'person-name',
  'address',
  'regex-prompt-injection',
]
const ACTIONS = [
  ['', 'off'],
  ['flag', 'flag'],
  ['mask', 'mask'],
  ['redact', 'redact'],
  ['block', 'block'],
]
/** Values that are masked in a request come back in its answer. */
const REPLY_ACTIONS = ACTIONS.filter(([action]) => action !== 'mask')
const RESETS = [
  ['', 'no budget'],
  ['daily', 'each day'],
  ['weekly', 'each week'],
  ['monthly', 'each month'],
]
const FAIL_MODES = [
  ['closed', 'refuse the request'],
  ['open', 'allow the request'],
]

export function GuardrailForm({ calls, names, record, onDone, onClose }) {
  const isNew = record === undefined
  const save = async values => {
    const body = {
      ...(record?.is_workspace_default === true ? {} : { name: values.name }),
      ...(isNew && values.workspace_id !== '' ? { workspace_id: values.workspace_id } : {}),
      content_filter_builtins: builtinsOf(values, 'in', record?.content_filter_builtins),
      content_filters: patternsOf(values.patterns, record?.content_filters),
      output: outputOf(values, record?.output ?? null),
      limit_usd: numberOrNull(values.limit_usd),
      reset_interval: values.reset_interval === '' ? null : values.reset_interval,
      allowed_models: listOrNull(values.allowed_models),
      ignored_providers: listOrNull(values.ignored_providers),
      fail_mode: values.fail_mode,
    }
    await (isNew
      ? calls.api('POST', 'guardrails', { body })
      : calls.api('PATCH', `guardrails/${record.id}`, { body }))
    onDone()
  }
  const workspaces = [...names.workspaces.values()].map(({ id, name }) => [id, name])
  return html`
    <${FormDialog}
      title=${isNew ? 'New guardrail' : `Change ${guardrailName(names, record)}`}
      send=${isNew ? 'Create' : 'Save'}
      onSend=${save}
      onClose=${onClose}
    >
      <${Field}
        label="Name"
        name="name"
        required
        maxlength="200"
        value=${record?.name ?? ''}
        disabled=${record?.is_workspace_default ?? false}
      />
      ${
        isNew &&
        html`
          <${Field} label="Workspace" hint="It takes effect once it is assigned to keys or members">
            <${Select} name="workspace_id" value="" options=${[['', 'all'], ...workspaces]} />
          <//>
        `
      }
      <fieldset>
        <legend>Detectors</legend>
        <table class="plain" aria-label="Detectors">
          <thead><tr><th scope="col">Detector</th><th scope="col">Requests</th><th scope="col">Replies</th></tr></thead>
          <tbody>
            ${DETECTORS.map(
              slug => html`
                <tr key=${slug}>
                  <th scope="row">${slug}</th>
                  <td><${Action} side="in" slug=${slug} of=${record} label=${`${slug} in requests`} /></td>
                  <td><${Action} side="out" slug=${slug} of=${record?.output} label=${`${slug} in replies`} /></td>
                </tr>
              `,
            )}
          </tbody>
        </table>
      </fieldset>
      <${Field} label="Custom patterns in requests" hint="One per line: flag, mask, redact or block, a space, and a pattern in RE2 syntax">
        <textarea
          name="patterns"
          rows="3"
          spellcheck=${false}
          placeholder="redact \\bACME-[0-9]{6}\\b"
          defaultValue=${linesOf(record?.content_filters)}
        ></textarea>
      <//>
      <${Field} label="Custom patterns in replies">
        <textarea
          name="out_patterns"
          rows="2"
          spellcheck=${false}
          defaultValue=${linesOf(record?.output?.content_filters)}
        ></textarea>
      <//>
      <${Field} label="Budget of each key in USD" name="limit_usd" type="number" min="0" step="0.000001" value=${record?.limit_usd ?? ''} />
      <${Field} label="Budget period"><${Select} name="reset_interval" value=${record?.reset_interval ?? ''} options=${RESETS} /><//>
      <${Field}
        label="Allowed models"
        name="allowed_models"
        value=${(record?.allowed_models ?? []).join(', ')}
        hint="Separated by commas. Empty: all"
      />
      <${Field}
        label="Excluded providers"
        name="ignored_providers"
        value=${(record?.ignored_providers ?? []).join(', ')}
      />
      <${Field} label="If content cannot be checked">
        <${Select} name="fail_mode" value=${record?.fail_mode ?? 'closed'} options=${FAIL_MODES} />
      <//>
    <//>
  `
}

function Action({ side, slug, of, label }) {
  const action = (of?.content_filter_builtins ?? []).find(builtin => builtin.slug === slug)?.action ?? ''
  return html`<${Select} name=${`${side} ${slug}`} aria-label=${label} value=${action} options=${side === 'in' ? ACTIONS : REPLY_ACTIONS} />`
}

/** Detectors that are on. Their other settings, such as a scope, are kept. */
function builtinsOf(values, side, before) {
  return DETECTORS.flatMap(slug => {
    const action = values[`${side} ${slug}`]
    if (action === '') return []
    const scope = (before ?? []).find(builtin => builtin.slug === slug)?.scan_scope
    return [{ slug, action, ...(side === 'in' && scope != null ? { scan_scope: scope } : {}) }]
  })
}

function outputOf(values, before) {
  const builtins = builtinsOf(values, 'out')
  const filters = patternsOf(values.out_patterns, before?.content_filters)
  if (builtins.length === 0 && filters === null) return null
  const { window_bytes, overlap_bytes } = before ?? {}
  return {
    content_filter_builtins: builtins,
    content_filters: filters,
    ...(window_bytes === undefined ? {} : { window_bytes, overlap_bytes }),
  }
}

function linesOf(filters) {
  return (filters ?? []).map(({ action, pattern }) => `${action} ${pattern}`).join('\n')
}

/** @throws Error with the line number. Unchanged patterns keep their labels. */
function patternsOf(text, before) {
  const lines = text.split('\n').filter(line => line.trim() !== '')
  if (lines.length === 0) return null
  return lines.map((line, index) => {
    const [, action, pattern] = /^\s*(flag|mask|redact|block)\s(.+)$/.exec(line) ?? []
    if (pattern === undefined) {
      throw new Error(
        `Line ${index + 1} of the patterns must begin with flag, mask, redact or block, and a space`,
      )
    }
    const label = (before ?? []).find(filter => filter.pattern === pattern)?.label
    return { action, pattern, ...(label == null ? {} : { label }) }
  })
}
