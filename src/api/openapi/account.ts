/** The interface description of workspaces, credits, activity, audit and captures. Pure. */
import { Type } from '@sinclair/typebox'
import { count, instant, nullableText, oneOf, usd } from '../../protocol/json/schema.ts'
import { CAPTURE } from '../../protocol/management/captures.ts'
import { CreditCreation, WORKSPACE } from '../../protocol/management/management.ts'
import { PauseAnswer, PauseCreation } from '../../protocol/management/pauses.ts'
import { RolloutAnswer } from '../../protocol/management/rollouts.ts'
import {
  answer,
  DELETED_ANSWER,
  type Descriptions,
  KEY_HASH_FILTER,
  listOf,
  oneRecord,
  PAGE_PARAMETERS,
  query,
  repeat,
  tagged,
  text,
} from './description.ts'
import { EXAMPLE_KEY_HASH } from './keys.ts'

// Workspaces

const WORKSPACE_EXAMPLE = WORKSPACE.toExample({
  id: '3b241101-e2bb-4255-8caf-4136c566a962',
  name: 'Research',
  slug: 'research',
  is_default: false,
  default_guardrail_id: '9d1b8e0a-5c0b-5b6a-8f7e-3c2f1f0e9d8c',
  disabled_server_tools: ['gateway:web_search'],
  created_at: '2026-07-16T12:00:00.000Z',
  updated_at: '2026-07-16T12:00:00.000Z',
})

const workspaces = tagged('Workspaces', {
  listWorkspaces: {
    parameters: PAGE_PARAMETERS,
    answers: { 200: listOf(WORKSPACE.answer, WORKSPACE_EXAMPLE) },
  },
  createWorkspace: {
    body: {
      schema: WORKSPACE.creation,
      examples: {
        workspace: { name: 'Research', slug: 'research', disabled_server_tools: ['gateway:web_search'] },
      },
    },
    answers: { 201: oneRecord(WORKSPACE.answer, 'The new workspace.', WORKSPACE_EXAMPLE) },
    failures: ['conflict'],
  },
  getWorkspace: { answers: { 200: oneRecord(WORKSPACE.answer, 'The workspace.', WORKSPACE_EXAMPLE) } },
  updateWorkspace: {
    text: 'Absent fields keep their value; null clears the description and the disabled tools.',
    body: { schema: WORKSPACE.update, examples: { rename: { name: 'Research' } } },
    answers: { 200: oneRecord(WORKSPACE.answer, 'The changed workspace.', WORKSPACE_EXAMPLE) },
    failures: ['conflict'],
  },
  deleteWorkspace: {
    text: 'Disables its keys, and removes its credentials and guardrails.',
    answers: { 200: DELETED_ANSWER },
  },
})

// Credits, activity, audit

export const CreditEntryAnswer = Type.Object({
  id: text,
  amount: usd,
  note: nullableText,
  created_at: instant,
})
const CREDIT_EXAMPLE = { id: 'invoice-17', amount: 100, note: null, created_at: '2026-07-16T12:00:00.000Z' }

export const ActivityDay = Type.Object({
  date: Type.String({ format: 'date' }),
  model: Type.String({
    description:
      'Empty for requests that were refused before any provider was called; GET /generations has the requested_model of each',
  }),
  model_permaslug: text,
  endpoint_id: text,
  provider_name: Type.String({ description: 'Empty: no provider was called' }),
  usage: usd,
  byok_usage_inference: usd,
  ...repeat(count, 'requests', 'prompt_tokens', 'completion_tokens', 'reasoning_tokens'),
  workspace_id: Type.Optional(nullableText),
  session_id: Type.Optional(text),
  agent_id: Type.Optional(text),
  cache_read_tokens: Type.Optional(count),
  cache_write_tokens: Type.Optional(count),
})

/** A row of GET /activity with `dimensions`: their values, and the sums. */
export const ActivitySum = Type.Object({
  date: Type.Optional(Type.String({ format: 'date' })),
  ...repeat(Type.Optional(nullableText), 'model', 'provider', 'provider_name', 'workspace_id'),
  ...repeat(Type.Optional(nullableText), 'api_key_hash', 'user_id', 'session_id', 'agent_id'),
  usage: usd,
  byok_usage_inference: usd,
  ...repeat(count, 'requests', 'prompt_tokens', 'completion_tokens', 'reasoning_tokens'),
})

export const AuditEntryAnswer = Type.Object({
  id: text,
  time: instant,
  action: Type.String({ description: 'For example key.create; others may be added' }),
  actor_label: text,
  object: Type.Object({ kind: text, id: nullableText, name: nullableText }),
  client_address: nullableText,
})

const account = tagged('Account', {
  getCredits: {
    answers: {
      200: oneRecord(
        Type.Object({ total_credits: usd, total_usage: usd }),
        'Credits, and how much of them is used.',
        {
          total_credits: 100,
          total_usage: 0.5,
        },
      ),
    },
  },
  addCredits: {
    text: 'A second entry with the same id adds nothing.',
    body: { schema: CreditCreation, examples: { entry: { amount: 100, id: 'invoice-17' } } },
    answers: {
      200: oneRecord(CreditEntryAnswer, 'The entry exists already.', CREDIT_EXAMPLE),
      201: oneRecord(CreditEntryAnswer, 'The new entry.', CREDIT_EXAMPLE),
    },
    failures: ['conflict'],
  },
  getActivity: {
    text:
      'Today and the 30 days before (UTC), newest first: a row for each day, model and provider. With `dimensions`: any ' +
      'range of days, and a row for each combination of these dimensions alone.',
    parameters: [
      query('date', Type.String({ format: 'date' }), 'Only this day.'),
      KEY_HASH_FILTER,
      query('user_id', text, 'Only requests of this end user.'),
      query('workspace_id', text, 'Only requests of this workspace.'),
      query(
        'group_by',
        oneOf('workspace', 'session', 'agent'),
        'workspace: a row for each workspace too. session, agent: a row for each session or agent that requests name.',
      ),
      query(
        'dimensions',
        text,
        'A row for each combination of only these, separated by commas: any of day, model, provider, workspace, key, user, session, agent.',
      ),
      query('start_date', Type.String({ format: 'date' }), 'First day of the range; needs dimensions.'),
      query('end_date', Type.String({ format: 'date' }), 'Last day of the range; needs dimensions.'),
      query('model', text, 'Only usage of this model; needs dimensions.'),
      query('provider', text, 'Only usage of the provider with this slug; needs dimensions.'),
    ],
    answers: {
      200: answer(
        Type.Object({ data: Type.Array(Type.Union([ActivityDay, ActivitySum])) }),
        'Usage by day.',
        {
          data: [
            {
              date: '2026-07-16',
              model: 'acme/fast-1',
              model_permaslug: 'acme/fast-1',
              endpoint_id: 'acme/acme/fast-1',
              provider_name: 'Acme',
              usage: 0.5,
              byok_usage_inference: 0,
              requests: 12,
              prompt_tokens: 4096,
              completion_tokens: 2048,
              reasoning_tokens: 0,
            },
          ],
        },
      ),
    },
  },
  listAudit: {
    text: 'Newest first: changes, and tests of provider keys. Refused operations have no record.',
    parameters: PAGE_PARAMETERS,
    answers: {
      200: listOf(AuditEntryAnswer, {
        id: '42',
        time: '2026-07-16T12:00:00.000Z',
        action: 'key.create',
        actor_label: 'sk-gw-mgmt-0e6…1c2',
        object: { kind: 'key', id: EXAMPLE_KEY_HASH, name: 'CI' },
        client_address: '127.0.0.1',
      }),
    },
  },
})

// Captures

const NEW_CAPTURE = CAPTURE.toExample({
  id: 'cap_4Kq7TzN1xWc8Bv2LsRd9Fh3M',
  status: 'running',
  key_hash: EXAMPLE_KEY_HASH,
  created_by: 'sk-gw-mgmt-0e6…1c2',
  max_bytes: 10_485_760,
  created_at: '2026-07-16T12:00:00.000Z',
  ends_at: '2026-07-16T12:10:00.000Z',
  expires_at: '2026-07-17T12:00:00.000Z',
  parts: [],
})
const ENDED_CAPTURE = {
  ...NEW_CAPTURE,
  status: 'ended',
  bytes: 48_210,
  requests: 7,
  parts: [{ node: 'a8Kq2ZpX', host: 'gateway-1', bytes: 48_210, requests: 7, left_out: 0 }],
}

const captures = tagged('Captures', {
  createCapture: {
    text: 'Name a key or a workspace, not both. No operation returns the captured content: sluice captures show reads it.',
    body: {
      schema: CAPTURE.creation,
      examples: {
        key: { key_hash: EXAMPLE_KEY_HASH, minutes: 10, max_bytes: 10_485_760 },
        workspace: { workspace_id: 'ws_default', minutes: 5 },
      },
    },
    answers: { 201: oneRecord(CAPTURE.answer, 'The capture, which runs from now on.', NEW_CAPTURE) },
    failures: ['permission_denied', 'conflict'],
  },
  listCaptures: {
    text: 'Newest first. Captures that have ended are kept until 24 hours after they began.',
    parameters: PAGE_PARAMETERS,
    answers: { 200: listOf(CAPTURE.answer, ENDED_CAPTURE) },
  },
  getCapture: { answers: { 200: oneRecord(CAPTURE.answer, 'The capture.', ENDED_CAPTURE) } },
  deleteCapture: {
    text: 'Ends it, and removes its files: at once on this node, within a second on all others.',
    answers: { 200: DELETED_ANSWER },
  },
})

const ROLLOUT_EXAMPLE = {
  route: 'prod/chat',
  candidate: 'openai/gpt-5.1-mini',
  state: 'running',
  step: 1,
  share: 10,
  reason: 'nothing is proven yet: errors 0.90 % of 1204 against 1.10 % of 10880',
  arms: {
    base: {
      requests: 10_880,
      errors: 120,
      first_token_ms: 440,
      tokens_per_second: 85,
      cost: 0.0006,
      judged: 0,
      unaccepted: 0,
    },
    candidate: {
      requests: 1204,
      errors: 11,
      first_token_ms: 431,
      tokens_per_second: 92,
      cost: 0.0004,
      judged: 0,
      unaccepted: 0,
    },
  },
  shadow: null,
}
const oneRollout = (text: string, fields: object = {}) =>
  oneRecord(RolloutAnswer, text, { ...ROLLOUT_EXAMPLE, ...fields })

const rollouts = tagged('Rollouts', {
  listRollouts: {
    text: 'In the order of the configuration.',
    answers: { 200: listOf(RolloutAnswer, ROLLOUT_EXAMPLE) },
  },
  getRollout: { answers: { 200: oneRollout('The rollout.') } },
  advanceRollout: {
    text: 'Also ends a hold. The step of 100 % promotes the candidate.',
    answers: { 200: oneRollout('The rollout at its next step.', { step: 2, share: 50 }) },
    failures: ['conflict'],
  },
  holdRollout: {
    text: 'It stays at its share until it is advanced; a candidate that is proven worse is still rolled back.',
    answers: { 200: oneRollout('The rollout, which holds.', { state: 'holding' }) },
    failures: ['conflict'],
  },
  rollbackRollout: {
    text: 'The candidate gets no requests any more. A promoted one can be rolled back too.',
    answers: { 200: oneRollout('The rollout, rolled back.', { state: 'rolled_back', share: 0 }) },
    failures: ['conflict'],
  },
})

const PAUSE_EXAMPLE = {
  provider: 'openai',
  since: '2026-07-16T12:00:00.000Z',
  until: '2026-07-16T12:30:00.000Z',
  reason: 'incident 4711',
  actor_label: 'sk-gw-mgmt-12a...9f0',
}

const pauses = tagged('Pauses', {
  listPauses: { text: 'By slug.', answers: { 200: listOf(PauseAnswer, PAUSE_EXAMPLE) } },
  pauseProvider: {
    text: 'No instance sends it new requests until the time is over; running requests continue. A second pause replaces the first one.',
    body: { schema: PauseCreation, examples: { incident: { minutes: 30, reason: 'incident 4711' } } },
    answers: { 200: oneRecord(PauseAnswer, 'The pause.', PAUSE_EXAMPLE) },
  },
  resumeProvider: {
    answers: { 200: oneRecord(PauseAnswer, 'The pause, which has ended now.', PAUSE_EXAMPLE) },
  },
})

export const ACCOUNT: Descriptions = { ...workspaces, ...account, ...captures, ...rollouts, ...pauses }
