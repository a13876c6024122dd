/** The rows of management: keys, workspaces, credits, end users, credentials and guardrails. */
import { GUARDRAIL_BODY_MAX_BYTES, MANAGEMENT_BODY_MAX_BYTES } from '../../protocol/limits.ts'
import type { Store } from '../../storage/store.ts'
import { type GenerationListDeps, listGenerations } from '../generation.ts'
import type { Operation } from '../operation.ts'
import { manage } from '../operation-rows.ts'
import { type AccountDeps, addCredits, listActivity, showCredits } from './account.ts'
import { type AuditDeps, listAudit } from './audit.ts'
import {
  BYOK_BODY_MAX_BYTES,
  type ByokDeps,
  changeCredential,
  createCredential,
  deleteCredential,
  findCredential,
  listCredentials,
} from './byok.ts'
import {
  byPath,
  byQuery,
  changeEndUser,
  deactivateEndUser,
  END_USER_BODY_MAX_BYTES,
  type EndUserDeps,
  findEndUser,
  listEndUsers,
  registerEndUser,
} from './end-users.ts'
import {
  ASSIGNMENT_BODY_MAX_BYTES,
  type Assignees,
  type AssignmentDeps,
  assign,
  KEYS,
  listAllAssignments,
  listAssignments,
  MEMBERS,
  unassign,
} from './guardrail-assignments.ts'
import {
  changeGuardrail,
  createGuardrail,
  deleteGuardrail,
  findGuardrail,
  type GuardrailDeps,
  listGuardrails,
} from './guardrails.ts'
import { changeKey, createApiKey, deleteKey, findKey, type KeyDeps, listKeys } from './keys.ts'
import {
  changeWorkspace,
  createWorkspace,
  deleteWorkspace,
  findWorkspace,
  listWorkspaces,
  type WorkspaceDeps,
} from './workspaces.ts'

export type ManagementDeps = AccountDeps &
  AuditDeps &
  ByokDeps &
  EndUserDeps &
  GuardrailDeps &
  AssignmentDeps &
  WorkspaceDeps &
  GenerationListDeps & { readonly store: Pick<Store, 'audit'> }

export function accountRows(deps: ManagementDeps & KeyDeps): Operation[] {
  const bytes = MANAGEMENT_BODY_MAX_BYTES
  const userBytes = END_USER_BODY_MAX_BYTES
  return [
    manage('GET /keys', 'listKeys', 'List API keys', listKeys(deps)),
    manage('POST /keys', 'createKey', 'Create an API key', createApiKey(deps), bytes),
    manage('GET /keys/{hash}', 'getKey', 'Get an API key', findKey(deps)),
    manage('PATCH /keys/{hash}', 'updateKey', 'Update an API key', changeKey(deps), bytes),
    manage('DELETE /keys/{hash}', 'deleteKey', 'Delete an API key', deleteKey(deps)),

    manage('GET /workspaces', 'listWorkspaces', 'List workspaces', listWorkspaces(deps)),
    manage('POST /workspaces', 'createWorkspace', 'Create a workspace', createWorkspace(deps), bytes),
    manage('GET /workspaces/{ref}', 'getWorkspace', 'Get a workspace', findWorkspace(deps)),
    manage('PATCH /workspaces/{ref}', 'updateWorkspace', 'Update a workspace', changeWorkspace(deps), bytes),
    manage('DELETE /workspaces/{ref}', 'deleteWorkspace', 'Delete a workspace', deleteWorkspace(deps)),

    manage('GET /credits', 'getCredits', 'Get the credits of the account', showCredits(deps)),
    manage('POST /credits', 'addCredits', 'Add credits to the account', addCredits(deps), bytes),
    manage('GET /activity', 'getActivity', 'Get usage by day', listActivity(deps)),
    manage('GET /generations', 'listGenerations', 'List the latest generations', listGenerations(deps)),
    manage('GET /audit', 'listAudit', 'List changes made by management operations', listAudit(deps)),

    manage('POST /end-users', 'createEndUser', 'Register an end user', registerEndUser(deps), userBytes),
    manage('GET /end-users', 'listEndUsers', 'List end users', listEndUsers(deps)),
    manage(
      'PATCH /end-users',
      'updateEndUserByQuery',
      'Update the end user of ?user=',
      changeEndUser(deps, byQuery),
      userBytes,
    ),
    manage(
      'DELETE /end-users',
      'deleteEndUserByQuery',
      'Deactivate the end user of ?user=',
      deactivateEndUser(deps, byQuery),
    ),
    endUser(manage('GET /end-users/{user}', 'getEndUser', 'Get an end user', findEndUser(deps))),
    endUser(
      manage(
        'PATCH /end-users/{user}',
        'updateEndUser',
        'Update an end user',
        changeEndUser(deps, byPath),
        userBytes,
      ),
    ),
    endUser(
      manage(
        'DELETE /end-users/{user}',
        'deleteEndUser',
        'Deactivate an end user',
        deactivateEndUser(deps, byPath),
      ),
    ),
  ]
}

/** Own provider credentials, and guardrails with their assignments. */
export function ruleRows(deps: ManagementDeps): Operation[] {
  const bytes = GUARDRAIL_BODY_MAX_BYTES
  return [
    manage('POST /byok', 'createCredential', 'Add a credential', createCredential(deps), BYOK_BODY_MAX_BYTES),
    manage('GET /byok', 'listCredentials', 'List credentials', listCredentials(deps)),
    manage('GET /byok/{id}', 'getCredential', 'Get a credential', findCredential(deps)),
    manage(
      'PATCH /byok/{id}',
      'updateCredential',
      'Update a credential',
      changeCredential(deps),
      BYOK_BODY_MAX_BYTES,
    ),
    manage('DELETE /byok/{id}', 'deleteCredential', 'Delete a credential', deleteCredential(deps)),

    manage('POST /guardrails', 'createGuardrail', 'Create a guardrail', createGuardrail(deps), bytes),
    manage('GET /guardrails', 'listGuardrails', 'List guardrails', listGuardrails(deps)),
    manage('GET /guardrails/{id}', 'getGuardrail', 'Get a guardrail', findGuardrail(deps)),
    manage('PATCH /guardrails/{id}', 'updateGuardrail', 'Update a guardrail', changeGuardrail(deps), bytes),
    manage('DELETE /guardrails/{id}', 'deleteGuardrail', 'Delete a guardrail', deleteGuardrail(deps)),
    ...assignmentRows(deps, 'keys', 'Key', KEYS),
    ...assignmentRows(deps, 'members', 'Member', MEMBERS),
  ]
}

function assignmentRows(deps: ManagementDeps, noun: string, name: string, assignees: Assignees): Operation[] {
  const path = `/guardrails/{id}/assignments/${noun}` as const
  const bytes = ASSIGNMENT_BODY_MAX_BYTES
  return [
    manage(
      `GET /guardrails/assignments/${noun}`,
      `list${name}Assignments`,
      `List all assignments of guardrails to ${noun}`,
      listAllAssignments(deps, assignees),
    ),
    manage(
      `GET ${path}`,
      `listGuardrail${name}Assignments`,
      `List the ${noun} that a guardrail is assigned to`,
      listAssignments(deps, assignees),
    ),
    manage(`POST ${path}`, `assign${name}s`, `Assign a guardrail to ${noun}`, assign(deps, assignees), bytes),
    manage(
      `POST ${path}/remove`,
      `unassign${name}s`,
      `Remove a guardrail from ${noun}`,
      unassign(deps, assignees),
      bytes,
    ),
  ]
}

/** End users may be any text. */
function endUser(operation: Operation): Operation {
  return { ...operation, freeParam: 'user' }
}
