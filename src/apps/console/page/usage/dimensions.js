/** Dimensions and measures of usage: their names, and their fields in a row of GET /activity. */
import { count, text, usd, whole } from '../format.js'
import { keyName, workspaceName } from '../names.js'

/** In column order. `value`: the id in a row; `name`: its display name; `filter`: the query parameter. */
export const DIMENSIONS = {
  day: { name: 'Day', value: row => row.date, show: value => value },
  model: { name: 'Model', value: row => row.model, show: value => text(value), filter: 'model' },
  key: {
    name: 'Key',
    value: row => row.api_key_hash,
    show: (value, names) => keyName(names, value),
    filter: 'api_key_hash',
  },
  workspace: {
    name: 'Workspace',
    value: row => row.workspace_id,
    show: (value, names) => workspaceName(names, value),
    filter: 'workspace_id',
  },
  provider: { name: 'Provider', value: row => row.provider, show: value => text(value), filter: 'provider' },
  user: { name: 'End user', value: row => row.user_id, show: value => text(value), filter: 'user_id' },
  session: { name: 'Session', value: row => row.session_id, show: value => text(value) },
  agent: { name: 'Agent', value: row => row.agent_id, show: value => text(value) },
}

export const FIGURES = {
  usage: { name: 'Cost', show: usd, short: usd },
  requests: { name: 'Requests', show: whole, short: count },
  prompt_tokens: { name: 'Input tokens', show: whole, short: count },
  completion_tokens: { name: 'Output tokens', show: whole, short: count },
  reasoning_tokens: { name: 'Reasoning tokens', show: whole, short: count },
  byok_usage_inference: { name: 'On BYOK credentials', show: usd, short: usd },
}
