/** The controls above the usage view: the range, the values to draw and list, and filters. */
import { Check, Field, Select } from '../forms.js'
import { html } from '../html.js'
import { keyName, workspaceName } from '../names.js'
import { DIMENSIONS, FIGURES } from './dimensions.js'

/** Selectable ranges in days before today. */
const RANGES = [
  ['7', 'Last 7 days'],
  ['30', 'Last 30 days'],
  ['90', 'Last 90 days'],
  ['365', 'Last 365 days'],
  ['month', 'This month'],
  ['own', 'Custom range'],
]

const CHART_DIMENSIONS = ['model', 'key', 'workspace', 'provider', 'user', 'session', 'agent']

export function UsageControls({ chosen, names, days, onChange, onAgain }) {
  const set = name => event => onChange({ [name]: event.currentTarget.value })
  const setRange = event => {
    const range = event.currentTarget.value
    onChange(range === 'own' ? { range, from: days.from, to: days.to } : { range })
  }
  const column = dimension => event => {
    const isOn = event.currentTarget.checked
    const columns = Object.keys(DIMENSIONS).filter(candidate =>
      candidate === dimension ? isOn : chosen.columns.includes(candidate),
    )
    if (columns.length > 0) onChange({ columns })
  }
  const keys = [...names.keys.keys()].map(hash => [hash, keyName(names, hash)])
  const workspaces = [...names.workspaces.keys()].map(id => [id, workspaceName(names, id)])
  return html`
    <div class="controls">
      <${Field} label="Range"><${Select} value=${chosen.range} options=${RANGES} onChange=${setRange} /><//>
      ${
        chosen.range === 'own' &&
        html`
          <${Field} label="First day" type="date" value=${chosen.from} onChange=${set('from')} />
          <${Field} label="Last day" type="date" value=${chosen.to} onChange=${set('to')} />
        `
      }
      <${Field} label="Chart by">
        <${Select} value=${chosen.by} options=${CHART_DIMENSIONS.map(dimension => [dimension, DIMENSIONS[dimension].name])} onChange=${set('by')} />
      <//>
      <${Field} label="Figure">
        <${Select}
          value=${chosen.measure}
          options=${Object.entries(FIGURES).map(([field, { name }]) => [field, name])}
          onChange=${set('measure')}
        />
      <//>
      <${Field} label="Key">
        <${Select} value=${chosen.api_key_hash} options=${[['', 'All keys'], ...keys]} onChange=${set('api_key_hash')} />
      <//>
      <${Field} label="Workspace">
        <${Select}
          value=${chosen.workspace_id}
          options=${[['', 'All workspaces'], ...workspaces]}
          onChange=${set('workspace_id')}
        />
      <//>
      <${Field} label="Model" type="search" value=${chosen.model} placeholder="all" onChange=${set('model')} />
      <${Field} label="Provider" type="search" value=${chosen.provider} placeholder="all" onChange=${set('provider')} />
      <${Field} label="End user" type="search" value=${chosen.user_id} placeholder="all" onChange=${set('user_id')} />
      <fieldset class="columns">
        <legend>Columns of the table</legend>
        ${Object.entries(DIMENSIONS).map(
          ([dimension, { name }]) => html`
            <${Check}
              key=${dimension}
              label=${name}
              checked=${chosen.columns.includes(dimension)}
              onChange=${column(dimension)}
            />
          `,
        )}
      </fieldset>
      <button type="button" onClick=${onAgain}>Refresh</button>
    </div>
  `
}
