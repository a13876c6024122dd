/** The rows of management operations, which need a management key. */

import { setImmediate as turn } from 'node:timers/promises'
import { GatewayError, RETRY_AFTER_SECONDS } from '../../base/errors.ts'
import { SlotQueue } from '../../base/fairness/slot-queue.ts'
import { abortSignalOf } from '../../base/signal.ts'
import { GUARDRAIL_BODY_MAX_BYTES, MANAGEMENT_BODY_MAX_BYTES } from '../../protocol/limits.ts'
import { listGenerations } from '../generation.ts'
import type { Handler, Operation } from '../operation.ts'
import { managementKey } from '../operation-rows.ts'
import { addCredits, listActivity, showCredits } from './account.ts'
import { listAudit } from './audit.ts'
import {
  BYOK_BODY_MAX_BYTES,
  changeCredential,
  createCredential,
  deleteCredential,
  findCredential,
  listCredentials,
} from './byok.ts'
import {
  CAPTURE_BODY_MAX_BYTES,
  createCapture,
  deleteCapture,
  findCapture,
  listCaptures,
} from './captures.ts'
import {
  byPath,
  byQuery,
  changeEndUser,
  deactivateEndUser,
  END_USER_BODY_MAX_BYTES,
  findEndUser,
  listEndUsers,
  registerEndUser,
} from './end-users.ts'
import {
  ASSIGNMENT_BODY_MAX_BYTES,
  type Assignees,
  assign,
  KEY_ASSIGNEES,
  listAllAssignments,
  listAssignments,
  MEMBER_ASSIGNEES,
  unassign,
} from './guardrail-assignments.ts'
import { listGuardrailBudgets } from './guardrail-budgets.ts'
import { checkGuardrailText, GUARDRAIL_CHECK_BODY_MAX_BYTES } from './guardrail-check.ts'
import {
  changeGuardrail,
  createGuardrail,
  deleteGuardrail,
  findGuardrail,
  listGuardrails,
} from './guardrails.ts'
import { checkCredential, checkProviderKey, KEY_CHECK_BODY_MAX_BYTES } from './key-check.ts'
import { rotateKey } from './key-rotation.ts'
import { changeKey, createApiKey, deleteKey, findKey, listKeys } from './keys.ts'
import type { ManagementParts } from './parts.ts'
import { listPauses, pauseProvider, resumeProvider } from './pauses.ts'
import { findRollout, listRollouts, moveRollout, type RolloutMove } from './rollouts.ts'
import {
  changeWorkspace,
  createWorkspace,
  deleteWorkspace,
  findWorkspace,
  listWorkspaces,
} from './workspaces.ts'

/** The role for reading. */
const viewer = managementKey('viewer')
/** The role for everyday changes. A row applies to every record; handlers may require more for some of them. */
const operator = managementKey('operator')
/** The role for changes of money, provider keys, and what cannot be undone. */
const admin = managementKey('admin')

/**
 * Maximum concurrent operations of one key in a thread, and of all keys. An embedded database runs on the calling
 * thread, so each of them blocks streams for a few milliseconds at a time.
 */
const SLOT_LIMITS = { slots: 8, perKey: 2, waitMs: 30_000 } as const
/** Operations that call a provider or a task worker; these calls have limits of their own. */
const OPERATIONS_WITHOUT_SLOT: ReadonlySet<string> = new Set([
  'checkCredential',
  'checkProviderKey',
  'checkGuardrail',
])

export function managementRows(deps: ManagementParts): Operation[] {
  const slots = new SlotQueue({ clock: deps.clock, ...SLOT_LIMITS })
  return [...accountRows(deps), ...ruleRows(deps)].map(operation =>
    operation.key !== 'management' || OPERATIONS_WITHOUT_SLOT.has(operation.id)
      ? operation
      : { ...operation, handler: withSlot(slots, operation.handler) },
  )
}

/** Handles requests within these limits, each in a turn of the event loop of its own. */
function withSlot(slots: SlotQueue, handler: Handler): Handler {
  return async (request, reply) => {
    const release = await slots.enter(request.key.hash, abortSignalOf(request.context.signal))
    if (release === null) throw tooMany()
    try {
      await turn()
      await handler(request, reply)
    } finally {
      release()
    }
  }
}

function tooMany(): GatewayError {
  return new GatewayError(
    'rate_limit_exceeded',
    'This management key has too many operations running at once: wait for some of them to finish',
    { retryAfterSeconds: RETRY_AFTER_SECONDS.moment },
  )
}

function accountRows(deps: ManagementParts): Operation[] {
  const bytes = MANAGEMENT_BODY_MAX_BYTES
  const userBytes = END_USER_BODY_MAX_BYTES
  return [
    viewer('GET /keys', 'listKeys', 'List API keys', listKeys(deps)),
    operator('POST /keys', 'createKey', 'Create an API key', createApiKey(deps), bytes),
    viewer('GET /keys/{hash}', 'getKey', 'Get an API key', findKey(deps)),
    operator('PATCH /keys/{hash}', 'updateKey', 'Update an API key', changeKey(deps), bytes),
    operator('POST /keys/{hash}/rotate', 'rotateKey', 'Give an API key a new secret', rotateKey(deps), bytes),
    operator('DELETE /keys/{hash}', 'deleteKey', 'Delete an API key', deleteKey(deps)),

    viewer('GET /workspaces', 'listWorkspaces', 'List workspaces', listWorkspaces(deps)),
    operator('POST /workspaces', 'createWorkspace', 'Create a workspace', createWorkspace(deps), bytes),
    viewer('GET /workspaces/{ref}', 'getWorkspace', 'Get a workspace', findWorkspace(deps)),
    operator(
      'PATCH /workspaces/{ref}',
      'updateWorkspace',
      'Update a workspace',
      changeWorkspace(deps),
      bytes,
    ),
    admin('DELETE /workspaces/{ref}', 'deleteWorkspace', 'Delete a workspace', deleteWorkspace(deps)),

    viewer('GET /credits', 'getCredits', 'Get the credits of the account', showCredits(deps)),
    admin('POST /credits', 'addCredits', 'Add credits to the account', addCredits(deps), bytes),
    viewer('GET /activity', 'getActivity', 'Get usage by day', listActivity(deps)),
    viewer('GET /generations', 'listGenerations', 'List the latest generations', listGenerations(deps)),
    viewer('GET /audit', 'listAudit', 'List changes made by management operations', listAudit(deps)),

    admin(
      'POST /captures',
      'createCapture',
      'Capture the requests of a key or a workspace',
      createCapture(deps),
      CAPTURE_BODY_MAX_BYTES,
    ),
    viewer('GET /captures', 'listCaptures', 'List captures', listCaptures(deps)),
    viewer('GET /captures/{id}', 'getCapture', 'Get a capture, without its content', findCapture(deps)),
    admin('DELETE /captures/{id}', 'deleteCapture', 'End and delete a capture', deleteCapture(deps)),

    viewer('GET /rollouts', 'listRollouts', 'List the rollouts of routes', listRollouts(deps)),
    withFreeParam('route', viewer('GET /rollouts/{route}', 'getRollout', 'Get a rollout', findRollout(deps))),
    ...rolloutMoves(deps),

    viewer('GET /pauses', 'listPauses', 'List the providers that are out of service', listPauses(deps)),
    withFreeParam(
      'provider',
      operator(
        'POST /providers/{provider}/pause',
        'pauseProvider',
        'Take a provider out of service for a time',
        pauseProvider(deps),
        bytes,
      ),
    ),
    withFreeParam(
      'provider',
      operator(
        'POST /providers/{provider}/resume',
        'resumeProvider',
        'Put a provider into service again',
        resumeProvider(deps),
      ),
    ),

    operator('POST /end-users', 'createEndUser', 'Register an end user', registerEndUser(deps), userBytes),
    viewer('GET /end-users', 'listEndUsers', 'List end users', listEndUsers(deps)),
    operator(
      'PATCH /end-users',
      'updateEndUserByQuery',
      'Update the end user that ?user= names',
      changeEndUser(deps, byQuery),
      userBytes,
    ),
    operator(
      'DELETE /end-users',
      'deleteEndUserByQuery',
      'Deactivate the end user that ?user= names',
      deactivateEndUser(deps, byQuery),
    ),
    withFreeParam(
      'user',
      viewer('GET /end-users/{user}', 'getEndUser', 'Get an end user', findEndUser(deps)),
    ),
    withFreeParam(
      'user',
      operator(
        'PATCH /end-users/{user}',
        'updateEndUser',
        'Update an end user',
        changeEndUser(deps, byPath),
        userBytes,
      ),
    ),
    withFreeParam(
      'user',
      operator(
        'DELETE /end-users/{user}',
        'deleteEndUser',
        'Deactivate an end user',
        deactivateEndUser(deps, byPath),
      ),
    ),
  ]
}

/** Provider credentials of workspaces, and guardrails with their assignments. */
function ruleRows(deps: ManagementParts): Operation[] {
  const bytes = GUARDRAIL_BODY_MAX_BYTES
  return [
    admin('POST /byok', 'createCredential', 'Add a credential', createCredential(deps), BYOK_BODY_MAX_BYTES),
    viewer('GET /byok', 'listCredentials', 'List credentials', listCredentials(deps)),
    viewer('GET /byok/{id}', 'getCredential', 'Get a credential', findCredential(deps)),
    admin(
      'PATCH /byok/{id}',
      'updateCredential',
      'Update a credential',
      changeCredential(deps),
      BYOK_BODY_MAX_BYTES,
    ),
    admin('DELETE /byok/{id}', 'deleteCredential', 'Delete a credential', deleteCredential(deps)),
    operator(
      'POST /byok/{id}/check',
      'checkCredential',
      'Test the key of a credential',
      checkCredential(deps),
      KEY_CHECK_BODY_MAX_BYTES,
    ),
    operator(
      'POST /providers/check',
      'checkProviderKey',
      "Test the gateway's key for a provider",
      checkProviderKey(deps),
      KEY_CHECK_BODY_MAX_BYTES,
    ),

    operator('POST /guardrails', 'createGuardrail', 'Create a guardrail', createGuardrail(deps), bytes),
    viewer('GET /guardrails', 'listGuardrails', 'List guardrails', listGuardrails(deps)),
    viewer('GET /guardrails/{id}', 'getGuardrail', 'Get a guardrail', findGuardrail(deps)),
    operator('PATCH /guardrails/{id}', 'updateGuardrail', 'Update a guardrail', changeGuardrail(deps), bytes),
    operator('DELETE /guardrails/{id}', 'deleteGuardrail', 'Delete a guardrail', deleteGuardrail(deps)),
    operator(
      'POST /guardrails/{id}/check',
      'checkGuardrail',
      'Check a text against a guardrail',
      checkGuardrailText(deps),
      GUARDRAIL_CHECK_BODY_MAX_BYTES,
    ),
    viewer(
      'GET /guardrails/{id}/budgets',
      'listGuardrailBudgets',
      "List a guardrail's budgets, and how much of each is spent",
      listGuardrailBudgets(deps),
    ),
    ...assignmentRows(deps, 'keys', 'Key', KEY_ASSIGNEES),
    ...assignmentRows(deps, 'members', 'Member', MEMBER_ASSIGNEES),
  ]
}

function assignmentRows(
  deps: ManagementParts,
  noun: string,
  name: string,
  assignees: Assignees,
): Operation[] {
  const path = `/guardrails/{id}/assignments/${noun}` as const
  const bytes = ASSIGNMENT_BODY_MAX_BYTES
  return [
    viewer(
      `GET /guardrails/assignments/${noun}`,
      `list${name}Assignments`,
      `List all assignments of guardrails to ${noun}`,
      listAllAssignments(deps, assignees),
    ),
    viewer(
      `GET ${path}`,
      `listGuardrail${name}Assignments`,
      `List the ${noun} that a guardrail is assigned to`,
      listAssignments(deps, assignees),
    ),
    operator(
      `POST ${path}`,
      `assign${name}s`,
      `Assign a guardrail to ${noun}`,
      assign(deps, assignees),
      bytes,
    ),
    operator(
      `POST ${path}/remove`,
      `unassign${name}s`,
      `Remove a guardrail from ${noun}`,
      unassign(deps, assignees),
      bytes,
    ),
  ]
}

const ROLLOUT_MOVES: Readonly<Record<RolloutMove, readonly [id: string, summary: string]>> = {
  advance: ['advanceRollout', 'Take a rollout to its next step'],
  hold: ['holdRollout', 'Hold a rollout at its share'],
  rollback: ['rollbackRollout', 'Take a rollout back'],
}

function rolloutMoves(deps: ManagementParts): Operation[] {
  return Object.entries(ROLLOUT_MOVES).map(([move, [id, summary]]) =>
    withFreeParam(
      'route',
      operator(`POST /rollouts/{route}/${move}`, id, summary, moveRollout(deps, move as RolloutMove)),
    ),
  )
}

/** Routes and slugs of regions may have an encoded slash, and an end user may be any text. */
function withFreeParam(freeParam: 'route' | 'provider' | 'user', operation: Operation): Operation {
  return { ...operation, freeParam }
}
