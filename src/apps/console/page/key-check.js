/** A dialog that tests a provider key with one real call, and shows the outcome. The key is never shown. */
import { duration } from './format.js'
import { Field, FormDialog, Select } from './forms.js'
import { html, useState } from './html.js'
import { Chip, useApi } from './parts.js'

/**
 * `provider`: slug. `model`: id of a model to call as well; absent: none. `credential`: a BYOK credential; absent: the
 * gateway's key is selected, and those of workspaces can be chosen.
 */
export function KeyCheck({ calls, provider, model, credential, onClose }) {
  const [isModel, setIsModel] = useState(false)
  const [workspace, setWorkspace] = useState('')
  const [chosen, setChosen] = useState('')
  const [verdict, setVerdict] = useState(null)
  const { document: workspaces } = useApi(calls, credential === undefined ? 'workspaces' : null, {
    limit: 100,
  })
  const { document: credentialList, isAsking } = useApi(calls, workspace === '' ? null : 'byok', {
    workspace_id: workspace,
    provider,
    limit: 100,
  })
  const credentials = workspace === '' || isAsking ? [] : (credentialList?.data ?? [])
  const credentialId = credential?.id ?? (credentials.find(({ id }) => id === chosen) ?? credentials[0])?.id
  const isNone = credential === undefined && workspace !== '' && credentialId === undefined
  const onChoice = set => event => {
    setVerdict(null)
    set(event.currentTarget.value)
  }
  const send = async () => {
    setVerdict(null)
    const modelField = isModel ? { model } : {}
    const { data } = await (credentialId === undefined
      ? calls.api('POST', 'providers/check', { body: { provider, ...modelField } })
      : calls.api('POST', `byok/${credentialId}/check`, { body: modelField }))
    setVerdict(data)
  }
  return html`
    <${FormDialog}
      title=${`Try a key of ${provider}`}
      send="Try it"
      leave="Close"
      stays
      disabled=${isNone}
      onSend=${send}
      onClose=${onClose}
    >
      <p>
        This calls the provider: for its list of models if the list needs a key, otherwise for a few tokens or an embedding. It takes at most 20 seconds and is listed under Changes.
      </p>
      ${
        credential === undefined &&
        html`
          <${Field} label="Key of">
            <${Select}
              value=${workspace}
              options=${[['', 'the gateway'], ...(workspaces?.data ?? []).map(({ id, name }) => [id, `workspace ${name}`])]}
              onChange=${onChoice(setWorkspace)}
            />
          <//>
        `
      }
      ${
        credentials.length > 0 &&
        html`
          <${Field} label="Credential">
            <${Select}
              value=${credentialId}
              options=${credentials.map(({ id, name, label }) => [id, name ?? label])}
              onChange=${onChoice(setChosen)}
            />
          <//>
        `
      }
      ${isNone && html`<p class="dim" role="status">${isAsking ? 'Loading …' : `No BYOK credential for ${provider} there.`}</p>`}
      ${
        model !== undefined &&
        html`
          <${Field} label="Call">
            <${Select}
              value=${isModel ? 'model' : ''}
              options=${[['', 'the cheapest'], ['model', `a completion of ${model}`]]}
              onChange=${onChoice(value => setIsModel(value === 'model'))}
            />
          <//>
        `
      }
      <div role="status">${verdict !== null && html`<${Verdict} verdict=${verdict} />`}</div>
    <//>
  `
}

function Verdict({ verdict: { works, message, field, advice, duration_ms: ms } }) {
  return html`
    <p class="verdict">
      <${Chip} tone=${works ? 'good' : 'bad'}>${works ? 'works' : 'does not work'}<//>
      ${' '}${message}${' '}<span class="dim">${duration(ms)}</span>
    </p>
    ${advice !== null && html`<p>${advice}.${field !== null && html`${' '}Field: <code>${field}</code>`}</p>`}
  `
}
