/** The interface description of own provider credentials, guardrails and their assignments. Pure. */
import { Type } from '@sinclair/typebox'
import { nullable, oneOf } from '../../protocol/json/schema.ts'
import {
  CredentialCheck,
  CredentialCreation,
  CredentialUpdate,
  ProviderCheck,
} from '../../protocol/management/byok.ts'
import {
  BUILTIN_LABELS,
  GuardrailCheck,
  GuardrailCreation,
  GuardrailUpdate,
  KeyAssignees,
  MemberAssignees,
} from '../../protocol/management/guardrails.ts'
import { answer, DELETED, type Descriptions, listOf, oneRecord, PAGE, query } from './description.ts'
import { count, orNoText, text, usd } from './response.ts'

const instant = Type.String({ format: 'date-time' })
const flagged = Type.Boolean()
const texts = nullable(Type.Array(text))
const NOW = '2026-07-16T12:00:00.000Z'
const ID = '3b241101-e2bb-4255-8caf-4136c566a962'
const HASH = '5f70bf18a086007016e948b04aed3b82103a36bea41755b6cddfaf10ace3c6ef'

// Credentials

export const Credential = Type.Object({
  id: text,
  name: orNoText,
  provider: text,
  label: Type.String({ description: 'The masked key; the key itself is never returned' }),
  workspace_id: text,
  created_at: instant,
  disabled: flagged,
  is_required: flagged,
  is_fallback: flagged,
  is_byok_only: flagged,
  sort_order: Type.Integer(),
  allowed_api_key_hashes: texts,
  allowed_models: texts,
  allowed_user_ids: texts,
  declared_region: nullable(oneOf('global', 'europe', 'us')),
  declared_zdr: nullable(flagged),
  usable: Type.Boolean({ description: 'False: the provider cannot be asked, and routing ignores the key' }),
  unusable_reason: nullable(
    Type.String({ description: 'Why no request can use the key; null: requests can' }),
  ),
})

const CREDENTIAL = {
  id: ID,
  name: 'Production',
  provider: 'mistral',
  label: 'abcd…wxyz',
  workspace_id: 'default',
  created_at: NOW,
  disabled: false,
  is_required: false,
  is_fallback: false,
  is_byok_only: true,
  sort_order: 0,
  allowed_api_key_hashes: null,
  allowed_models: ['mistralai/mistral-small'],
  allowed_user_ids: null,
  declared_region: null,
  declared_zdr: null,
  usable: true,
  unusable_reason: null,
}

export const KeyTrial = Type.Object({
  works: flagged,
  provider: text,
  credential_id: nullable(Type.String({ description: "Null: the gateway's own key" })),
  asked: nullable(oneOf('models', 'completion', 'embedding')),
  model: nullable(Type.String({ description: 'The model that was asked; null: none was' })),
  provider_status: nullable(Type.Integer()),
  message: Type.String({ description: 'What the provider said, without any key' }),
  field: nullable(Type.String({ description: 'What to put right; null: it is no field, or the key works' })),
  advice: orNoText,
  duration_ms: count,
})

const WORKS = {
  works: true,
  provider: 'mistral',
  credential_id: ID,
  asked: 'models',
  model: null,
  provider_status: 200,
  message: 'Mistral took the key: it listed its models',
  field: null,
  advice: null,
  duration_ms: 180,
}
const REFUSED = {
  ...WORKS,
  works: false,
  credential_id: null,
  provider_status: 401,
  message: "Mistral refused the gateway's key: Unauthorized",
  field: 'providers[].apiKey',
  advice:
    'Put a valid key into apiKey of the row mistral of providers, or into the variable MISTRAL_API_KEY, then reload or restart',
}
const TRIAL =
  'One real call: the list of models where the provider shows it to nobody without a key, otherwise the smallest completion. With a model it is that of the model. It takes at most 20 seconds, and is in no usage record.'

const credentials: Descriptions = {
  checkCredential: {
    tag: 'Provider credentials',
    text: `${TRIAL} A disabled credential can be tried too.`,
    body: { schema: CredentialCheck, examples: { list: {}, model: { model: 'mistralai/mistral-small' } } },
    answers: { 200: oneRecord(KeyTrial, 'What came of it.', WORKS) },
    failures: ['rate_limit_exceeded'],
  },
  checkProviderKey: {
    tag: 'Provider credentials',
    text: TRIAL,
    body: { schema: ProviderCheck, examples: { list: { provider: 'mistral' } } },
    answers: { 200: oneRecord(KeyTrial, 'What came of it.', REFUSED) },
    failures: ['not_found', 'rate_limit_exceeded'],
  },
  createCredential: {
    tag: 'Provider credentials',
    text: 'The key is sealed when it comes in, and never returned.',
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
    answers: { 201: oneRecord(Credential, 'The new credential.', CREDENTIAL) },
    failures: ['conflict'],
  },
  listCredentials: {
    tag: 'Provider credentials',
    text: 'By provider, then in the order in which they are tried.',
    parameters: [
      ...PAGE,
      query('workspace_id', text, 'The workspace; default: the default one.'),
      query('provider', text, 'Only credentials for this provider.'),
    ],
    answers: { 200: listOf(Credential, CREDENTIAL) },
  },
  getCredential: {
    tag: 'Provider credentials',
    answers: { 200: oneRecord(Credential, 'The credential.', CREDENTIAL) },
  },
  updateCredential: {
    tag: 'Provider credentials',
    text: 'Absent fields keep their value; null clears one.',
    body: { schema: CredentialUpdate, examples: { rotate: { key: 'the-new-key-at-the-provider' } } },
    answers: { 200: oneRecord(Credential, 'The changed credential.', CREDENTIAL) },
    failures: ['conflict'],
  },
  deleteCredential: {
    tag: 'Provider credentials',
    text: 'The stored key is erased.',
    answers: { 200: DELETED },
  },
}

// Guardrails

const action = oneOf('redact', 'block', 'flag')
const slug = oneOf(...(Object.keys(BUILTIN_LABELS) as (keyof typeof BUILTIN_LABELS)[]))
const CustomFilterAnswer = Type.Object({ pattern: text, action, label: orNoText })
const builtin = { slug, action, label: text }

export const Guardrail = Type.Object({
  id: text,
  name: text,
  description: orNoText,
  workspace_id: orNoText,
  is_workspace_default: flagged,
  limit_usd: nullable(usd),
  reset_interval: nullable(oneOf('daily', 'weekly', 'monthly')),
  include_byok_in_budgets: flagged,
  allowed_models: texts,
  ignored_models: texts,
  allowed_providers: texts,
  ignored_providers: texts,
  enforce_zdr: nullable(flagged),
  enforce_zdr_anthropic: nullable(flagged),
  enforce_zdr_openai: nullable(flagged),
  enforce_zdr_google: nullable(flagged),
  enforce_zdr_xai: nullable(flagged),
  enforce_zdr_other: nullable(flagged),
  enable_free_model_training: nullable(flagged),
  enable_free_model_publication: nullable(flagged),
  enable_paid_model_training: nullable(flagged),
  allowed_data_regions: nullable(Type.Array(oneOf('global', 'europe', 'us'))),
  content_filter_builtins: nullable(
    Type.Array(Type.Object({ ...builtin, scan_scope: Type.Optional(oneOf('user_only', 'all_messages')) })),
  ),
  content_filters: nullable(Type.Array(CustomFilterAnswer)),
  output: nullable(
    Type.Object({
      content_filter_builtins: nullable(Type.Array(Type.Object(builtin))),
      content_filters: nullable(Type.Array(CustomFilterAnswer)),
      window_bytes: count,
      overlap_bytes: count,
    }),
  ),
  fail_mode: oneOf('open', 'closed'),
  created_at: instant,
  updated_at: instant,
})

const GUARDRAIL = {
  id: ID,
  name: 'No customer data',
  description: null,
  workspace_id: null,
  is_workspace_default: false,
  limit_usd: null,
  reset_interval: null,
  include_byok_in_budgets: false,
  allowed_models: null,
  ignored_models: null,
  allowed_providers: null,
  ignored_providers: null,
  enforce_zdr: true,
  enforce_zdr_anthropic: true,
  enforce_zdr_openai: true,
  enforce_zdr_google: true,
  enforce_zdr_xai: true,
  enforce_zdr_other: true,
  enable_free_model_training: null,
  enable_free_model_publication: null,
  enable_paid_model_training: null,
  allowed_data_regions: null,
  content_filter_builtins: [{ slug: 'email', action: 'redact', label: '[EMAIL]' }],
  content_filters: [{ pattern: 'project [a-z]+', action: 'block', label: null }],
  output: null,
  fail_mode: 'closed',
  created_at: NOW,
  updated_at: NOW,
}

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
  key_hash: orNoText,
  key_name: orNoText,
  user_id: orNoText,
  limit_usd: usd,
  reset_interval: oneOf('daily', 'weekly', 'monthly'),
  spent_usd: usd,
  remaining_usd: usd,
  resets_at: instant,
})

const guardrails: Descriptions = {
  createGuardrail: {
    tag: 'Guardrails',
    text: 'Without a workspace it belongs to the whole organization. It takes effect once it is assigned.',
    body: { schema: GuardrailCreation, examples: { filters: RULES_EXAMPLE } },
    answers: { 201: oneRecord(Guardrail, 'The new guardrail.', GUARDRAIL) },
  },
  listGuardrails: {
    tag: 'Guardrails',
    text: 'Oldest first, default ones of workspaces too.',
    parameters: [...PAGE, query('workspace_id', text, 'Only guardrails of this workspace.')],
    answers: { 200: listOf(Guardrail, GUARDRAIL) },
  },
  getGuardrail: { tag: 'Guardrails', answers: { 200: oneRecord(Guardrail, 'The guardrail.', GUARDRAIL) } },
  updateGuardrail: {
    tag: 'Guardrails',
    text: 'Absent fields keep their value; null clears one.',
    body: {
      schema: GuardrailUpdate,
      examples: { budget: { limit_usd: 50, reset_interval: 'monthly' } },
    },
    answers: { 200: oneRecord(Guardrail, 'The changed guardrail.', GUARDRAIL) },
    failures: ['conflict'],
  },
  checkGuardrail: {
    tag: 'Guardrails',
    text: 'As a request of a user, or as a whole reply. Nothing is stored.',
    body: { schema: GuardrailCheck, examples: { mail: { text: 'Write to ada@example.com', side: 'input' } } },
    answers: {
      200: oneRecord(CheckedText, 'What was found, by position in UTF-16 units.', {
        action: 'redact',
        redacted: 'Write to [EMAIL]',
        findings: [{ detector: 'email', pattern: 'email', action: 'redact', start: 9, end: 24 }],
      }),
    },
    failures: ['guardrail_unavailable'],
  },
  listGuardrailBudgets: {
    tag: 'Guardrails',
    text: 'One for each key and member that it is assigned to. The default guardrail of a workspace gives one to each member with keys there, and to each key without a member. Empty where the guardrail has no budget.',
    parameters: PAGE,
    answers: {
      200: listOf(GuardrailBudget, {
        key_hash: HASH,
        key_name: 'CI',
        user_id: null,
        limit_usd: 50,
        reset_interval: 'monthly',
        spent_usd: 12.5,
        remaining_usd: 37.5,
        resets_at: NOW,
      }),
    },
  },
  deleteGuardrail: {
    tag: 'Guardrails',
    text: 'The default guardrail of a workspace cannot be deleted.',
    answers: { 200: DELETED },
  },
}

// Assignments

const assignment = { id: text, guardrail_id: text, assigned_by: orNoText, created_at: instant }
export const KeyAssignment = Type.Object({
  ...assignment,
  key_hash: text,
  key_name: orNoText,
  key_label: orNoText,
})
export const MemberAssignment = Type.Object({ ...assignment, user_id: text, organization_id: text })
const ASSIGNED = { id: '1', guardrail_id: ID, assigned_by: null, created_at: NOW }
const TO_KEY = { ...ASSIGNED, key_hash: HASH, key_name: 'CI', key_label: 'sk-gw-v1-0e6…1c2' }
const TO_MEMBER = { ...ASSIGNED, user_id: 'ada@example.com', organization_id: 'default' }

const assigned = answer(
  Type.Object({ assigned_count: count }),
  'How many different ones have the guardrail now.',
  { assigned_count: 1 },
)
const unassigned = answer(Type.Object({ unassigned_count: count }), 'How many of them had the guardrail.', {
  unassigned_count: 1,
})
const toKeys = { schema: KeyAssignees, examples: { key: { key_hashes: [HASH] } } }
const toMembers = { schema: MemberAssignees, examples: { member: { member_user_ids: ['ada@example.com'] } } }

const assignments: Descriptions = {
  listKeyAssignments: {
    tag: 'Guardrails',
    parameters: PAGE,
    answers: { 200: listOf(KeyAssignment, TO_KEY) },
  },
  listGuardrailKeyAssignments: {
    tag: 'Guardrails',
    parameters: PAGE,
    answers: { 200: listOf(KeyAssignment, TO_KEY) },
  },
  assignKeys: {
    tag: 'Guardrails',
    text: 'To all of them, or to none if one is unknown. Replaces earlier assignments of the same keys.',
    body: toKeys,
    answers: { 200: assigned },
  },
  unassignKeys: { tag: 'Guardrails', body: toKeys, answers: { 200: unassigned } },
  listMemberAssignments: {
    tag: 'Guardrails',
    parameters: PAGE,
    answers: { 200: listOf(MemberAssignment, TO_MEMBER) },
  },
  listGuardrailMemberAssignments: {
    tag: 'Guardrails',
    parameters: PAGE,
    answers: { 200: listOf(MemberAssignment, TO_MEMBER) },
  },
  assignMembers: {
    tag: 'Guardrails',
    text: 'A member is the creator_user_id of its keys. Replaces earlier assignments of the same members.',
    body: toMembers,
    answers: { 200: assigned },
  },
  unassignMembers: { tag: 'Guardrails', body: toMembers, answers: { 200: unassigned } },
}

export const RULES: Descriptions = { ...credentials, ...guardrails, ...assignments }
