/** The interface description of provider credentials (BYOK), guardrails and their assignments. Pure. */
import { Type } from '@sinclair/typebox'
import { count, instant, nullable, nullableText, oneOf, usd } from '../../protocol/json/schema.ts'
import {
  CREDENTIAL,
  CredentialCheck,
  CredentialCreation,
  CredentialUpdate,
  ProviderCheck,
} from '../../protocol/management/byok.ts'
import {
  GUARDRAIL,
  GuardrailCheck,
  GuardrailCreation,
  GuardrailUpdate,
  KeyAssignees,
  MemberAssignees,
} from '../../protocol/management/guardrails.ts'
import {
  answer,
  DELETED_ANSWER,
  type Descriptions,
  listOf,
  oneRecord,
  PAGE_PARAMETERS,
  query,
  repeat,
  tagged,
  text,
} from './description.ts'
import { EXAMPLE_KEY_HASH } from './keys.ts'

const EXAMPLE_TIME = '2026-07-16T12:00:00.000Z'
const EXAMPLE_ID = '3b241101-e2bb-4255-8caf-4136c566a962'

// Credentials

const CREDENTIAL_EXAMPLE = CREDENTIAL.toExample({
  id: EXAMPLE_ID,
  name: 'Production',
  provider: 'mistral',
  label: 'abcd…wxyz',
  workspace_id: 'ws_default',
  created_at: EXAMPLE_TIME,
  is_byok_only: true,
  sort_order: 0,
  allowed_models: ['mistralai/mistral-small'],
  usable: true,
  unusable_reason: null,
})

const KeyCheckResult = Type.Object({
  works: Type.Boolean(),
  provider: text,
  credential_id: nullable(Type.String({ description: "Null: the gateway's own key" })),
  asked: nullable(oneOf('models', 'completion', 'embedding')),
  model: nullable(Type.String({ description: 'The model that was called; null: no model' })),
  provider_status: nullable(Type.Integer()),
  message: Type.String({ description: 'What the provider said, without any key' }),
  field: nullable(
    Type.String({ description: 'The field to correct; null: no field is at fault, or the key works' }),
  ),
  advice: nullableText,
  duration_ms: count,
})

const WORKING_KEY_EXAMPLE = {
  works: true,
  provider: 'mistral',
  credential_id: EXAMPLE_ID,
  asked: 'models',
  model: null,
  provider_status: 200,
  message: 'Mistral accepted the key: it listed its models',
  field: null,
  advice: null,
  duration_ms: 180,
}
const REFUSED_KEY_EXAMPLE = {
  ...WORKING_KEY_EXAMPLE,
  works: false,
  credential_id: null,
  provider_status: 401,
  message: "Mistral refused the gateway's key: Unauthorized",
  field: 'providers[].apiKey',
  advice:
    'Put a valid key into apiKey of the row mistral under providers, or into the variable MISTRAL_API_KEY, then reload or restart',
}
const KEY_CHECK_NOTES =
  'Calls the provider: for its list of models if it shows the list only with a key, otherwise for the smallest completion or embedding. With `model`, that model is called. The check takes at most 20 seconds, and has no usage record.'

const credentials = tagged('Provider credentials', {
  checkCredential: {
    text: `${KEY_CHECK_NOTES} A disabled credential can be tested too.`,
    body: { schema: CredentialCheck, examples: { list: {}, model: { model: 'mistralai/mistral-small' } } },
    answers: { 200: oneRecord(KeyCheckResult, 'The outcome.', WORKING_KEY_EXAMPLE) },
    failures: ['rate_limit_exceeded'],
  },
  checkProviderKey: {
    text: KEY_CHECK_NOTES,
    body: { schema: ProviderCheck, examples: { list: { provider: 'mistral' } } },
    answers: { 200: oneRecord(KeyCheckResult, 'The outcome.', REFUSED_KEY_EXAMPLE) },
    failures: ['not_found', 'rate_limit_exceeded'],
  },
  createCredential: {
    text: 'The key is encrypted on arrival and never returned.',
    body: {
      schema: CredentialCreation,
      examples: {
        credential: {
          provider: 'mistral',
          key: 'the-key-at-the-provider',
          name: 'Production',
          allowed_models: ['mistralai/mistral-small'],
          is_byok_only: true,
        },
      },
    },
    answers: { 201: oneRecord(CREDENTIAL.answer, 'The new credential.', CREDENTIAL_EXAMPLE) },
    failures: ['conflict'],
  },
  listCredentials: {
    text: 'By provider, then in the order in which they are tried.',
    parameters: [
      ...PAGE_PARAMETERS,
      query('workspace_id', text, 'The workspace; default: the default workspace.'),
      query('provider', text, 'Only credentials for this provider.'),
    ],
    answers: { 200: listOf(CREDENTIAL.answer, CREDENTIAL_EXAMPLE) },
  },
  getCredential: {
    answers: { 200: oneRecord(CREDENTIAL.answer, 'The credential.', CREDENTIAL_EXAMPLE) },
  },
  updateCredential: {
    text: 'Absent fields keep their value; null clears one.',
    body: { schema: CredentialUpdate, examples: { rotate: { key: 'the-new-key-at-the-provider' } } },
    answers: { 200: oneRecord(CREDENTIAL.answer, 'The changed credential.', CREDENTIAL_EXAMPLE) },
    failures: ['conflict'],
  },
  deleteCredential: {
    text: 'The stored key is erased.',
    answers: { 200: DELETED_ANSWER },
  },
})

// Guardrails

const action = oneOf('redact', 'mask', 'block', 'flag')

const GUARDRAIL_EXAMPLE = GUARDRAIL.toExample({
  id: EXAMPLE_ID,
  name: 'No customer data',
  assigned: 2,
  ...repeat(true, 'enforce_zdr', 'enforce_zdr_anthropic', 'enforce_zdr_openai'),
  ...repeat(true, 'enforce_zdr_google', 'enforce_zdr_xai', 'enforce_zdr_other'),
  content_filter_builtins: [{ slug: 'email', action: 'redact', label: '[EMAIL]' }],
  content_filters: [{ pattern: 'project [a-z]+', action: 'block', label: null }],
  created_at: EXAMPLE_TIME,
  updated_at: EXAMPLE_TIME,
})

const RULES_EXAMPLE = {
  name: 'No customer data',
  enforce_zdr: true,
  content_filter_builtins: [{ slug: 'email', action: 'redact' }],
  content_filters: [{ pattern: 'project [a-z]+', action: 'block' }],
}

export const CheckedText = Type.Object({
  action: nullable(action),
  redacted: text,
  findings: Type.Array(Type.Object({ detector: text, pattern: text, action, start: count, end: count })),
})

export const GuardrailBudget = Type.Object({
  key_hash: nullableText,
  key_name: nullableText,
  user_id: nullableText,
  limit_usd: usd,
  reset_interval: oneOf('daily', 'weekly', 'monthly'),
  spent_usd: usd,
  remaining_usd: usd,
  resets_at: instant,
})

const guardrails = tagged('Guardrails', {
  createGuardrail: {
    text: 'Without a workspace it belongs to the whole organization. It takes effect once it is assigned.',
    body: { schema: GuardrailCreation, examples: { filters: RULES_EXAMPLE } },
    answers: { 201: oneRecord(GUARDRAIL.answer, 'The new guardrail.', GUARDRAIL_EXAMPLE) },
  },
  listGuardrails: {
    text: 'Oldest first, including the default guardrails of workspaces.',
    parameters: [...PAGE_PARAMETERS, query('workspace_id', text, 'Only guardrails of this workspace.')],
    answers: { 200: listOf(GUARDRAIL.answer, GUARDRAIL_EXAMPLE) },
  },
  getGuardrail: { answers: { 200: oneRecord(GUARDRAIL.answer, 'The guardrail.', GUARDRAIL_EXAMPLE) } },
  updateGuardrail: {
    text: 'Absent fields keep their value; null clears one.',
    body: {
      schema: GuardrailUpdate,
      examples: { budget: { limit_usd: 50, reset_interval: 'monthly' } },
    },
    answers: { 200: oneRecord(GUARDRAIL.answer, 'The changed guardrail.', GUARDRAIL_EXAMPLE) },
    failures: ['conflict'],
  },
  checkGuardrail: {
    text: "The text is checked as a user's request or as a whole reply. Nothing is stored.",
    body: { schema: GuardrailCheck, examples: { mail: { text: 'Write to ada@example.com', side: 'input' } } },
    answers: {
      200: oneRecord(
        CheckedText,
        'The findings, with positions in UTF-16 code units, and what the guardrail would do with the text.',
        {
          action: 'redact',
          redacted: 'Write to [EMAIL]',
          findings: [{ detector: 'email', pattern: 'email', action: 'redact', start: 9, end: 24 }],
        },
      ),
    },
    failures: ['guardrail_unavailable'],
  },
  listGuardrailBudgets: {
    text: 'One for each key and member that it is assigned to. The default guardrail of a workspace gives one to each member with keys there, and to each key without a member. Empty if the guardrail has no budget.',
    parameters: PAGE_PARAMETERS,
    answers: {
      200: listOf(GuardrailBudget, {
        key_hash: EXAMPLE_KEY_HASH,
        key_name: 'CI',
        user_id: null,
        limit_usd: 50,
        reset_interval: 'monthly',
        spent_usd: 12.5,
        remaining_usd: 37.5,
        resets_at: EXAMPLE_TIME,
      }),
    },
  },
  deleteGuardrail: {
    text: 'The default guardrail of a workspace cannot be deleted.',
    answers: { 200: DELETED_ANSWER },
  },
})

// Assignments

const assignment = { id: text, guardrail_id: text, assigned_by: nullableText, created_at: instant }
export const KeyAssignment = Type.Object({
  ...assignment,
  key_hash: text,
  key_name: nullableText,
  key_label: nullableText,
})
export const MemberAssignment = Type.Object({ ...assignment, user_id: text, organization_id: text })
const ASSIGNMENT_EXAMPLE = { id: '1', guardrail_id: EXAMPLE_ID, assigned_by: null, created_at: EXAMPLE_TIME }
const KEY_ASSIGNMENT_EXAMPLE = {
  ...ASSIGNMENT_EXAMPLE,
  key_hash: EXAMPLE_KEY_HASH,
  key_name: 'CI',
  key_label: 'sk-gw-v1-0e6…1c2',
}
const MEMBER_ASSIGNMENT_EXAMPLE = {
  ...ASSIGNMENT_EXAMPLE,
  user_id: 'ada@example.com',
  organization_id: 'default',
}

const assignedAnswer = answer(
  Type.Object({ assigned_count: count }),
  'How many different keys or members of the request now have the guardrail.',
  { assigned_count: 1 },
)
const unassignedAnswer = answer(
  Type.Object({ unassigned_count: count }),
  'How many keys or members of the request had the guardrail.',
  {
    unassigned_count: 1,
  },
)
const keysBody = { schema: KeyAssignees, examples: { key: { key_hashes: [EXAMPLE_KEY_HASH] } } }
const membersBody = {
  schema: MemberAssignees,
  examples: { member: { member_user_ids: ['ada@example.com'] } },
}

const keyList = {
  parameters: PAGE_PARAMETERS,
  answers: { 200: listOf(KeyAssignment, KEY_ASSIGNMENT_EXAMPLE) },
}
const memberList = {
  parameters: PAGE_PARAMETERS,
  answers: { 200: listOf(MemberAssignment, MEMBER_ASSIGNMENT_EXAMPLE) },
}

const assignments = tagged('Guardrails', {
  listKeyAssignments: keyList,
  listGuardrailKeyAssignments: keyList,
  assignKeys: {
    text: 'If one key is unknown, none is assigned. Replaces other guardrails that were assigned to the same keys.',
    body: keysBody,
    answers: { 200: assignedAnswer },
  },
  unassignKeys: { body: keysBody, answers: { 200: unassignedAnswer } },
  listMemberAssignments: memberList,
  listGuardrailMemberAssignments: memberList,
  assignMembers: {
    text: 'A member is named by the creator_user_id of its keys. Replaces other guardrails that were assigned to the same members.',
    body: membersBody,
    answers: { 200: assignedAnswer },
  },
  unassignMembers: { body: membersBody, answers: { 200: unassignedAnswer } },
})

export const RULES: Descriptions = { ...credentials, ...guardrails, ...assignments }
