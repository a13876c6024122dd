/**
 * The single table of all operations: a path that is not listed here does not exist. The OpenAPI document is generated
 * from it. A new operation is one row and one handler.
 */
import type { Clock } from '../clock.ts'
import type { Vault } from '../credentials/vault.ts'
import { createChatCompletions } from '../dialects/chat-completions.ts'
import type { Dialect } from '../dialects/dialect.ts'
import { createEmbeddings } from '../dialects/embeddings.ts'
import { createMessages } from '../dialects/messages.ts'
import { createResponsesDialect } from '../dialects/responses.ts'
import type { InvalidationBus } from '../invalidation/bus.ts'
import type { Offered } from '../protocol/json/request-parser.ts'
import {
  GUARDRAIL_BODY_MAX_BYTES,
  INFERENCE_BODY_MAX_BYTES,
  MANAGEMENT_BODY_MAX_BYTES,
} from '../protocol/limits.ts'
import type { Store } from '../storage/store.ts'
import {
  type BatchDeps,
  cancelBatch,
  createBatch,
  deleteBatch,
  findBatch,
  listBatches,
} from './batches/batches.ts'
import {
  cancelMessageBatch,
  createMessageBatch,
  deleteMessageBatch,
  findMessageBatch,
  listMessageBatches,
  readMessageResults,
} from './batches/message-batches.ts'
import { type CompactionDeps, compactConversation } from './compaction.ts'
import { countTokens, MESSAGES_COUNT, RESPONSES_COUNT } from './count-tokens.ts'
import { createEmbeddingsHandler } from './embeddings.ts'
import {
  createFile,
  deleteFile,
  type FilesApiDeps,
  FORM_REST_BYTES,
  findFile,
  listFiles,
  readFileContent,
} from './files.ts'
import { findGeneration, type GenerationDeps, listGenerations } from './generation.ts'
import {
  exceptGoogle,
  findModel as findGoogleModel,
  googleRows,
  listModels as listGoogleModels,
} from './google.ts'
import { createInference, type InferenceDeps } from './inference.ts'
import { addCredits, listActivity, showCredits } from './management/account.ts'
import { listAudit } from './management/audit.ts'
import {
  BYOK_BODY_MAX_BYTES,
  changeCredential,
  createCredential,
  deleteCredential,
  findCredential,
  listCredentials,
} from './management/byok.ts'
import type { SettingsDeps } from './management/credential-settings.ts'
import {
  byPath,
  byQuery,
  changeEndUser,
  deactivateEndUser,
  END_USER_BODY_MAX_BYTES,
  findEndUser,
  listEndUsers,
  registerEndUser,
} from './management/end-users.ts'
import {
  ASSIGNMENT_BODY_MAX_BYTES,
  type Assignees,
  assign,
  KEYS,
  listAllAssignments,
  listAssignments,
  MEMBERS,
  unassign,
} from './management/guardrail-assignments.ts'
import type { PatternProblem } from './management/guardrail-settings.ts'
import {
  changeGuardrail,
  createGuardrail,
  deleteGuardrail,
  findGuardrail,
  listGuardrails,
} from './management/guardrails.ts'
import { KeyUsage } from './management/key-usage.ts'
import {
  changeKey,
  createApiKey,
  deleteKey,
  findKey,
  type KeyDeps,
  listKeys,
  showOwnKey,
} from './management/keys.ts'
import {
  changeWorkspace,
  createWorkspace,
  deleteWorkspace,
  findWorkspace,
  listWorkspaces,
} from './management/workspaces.ts'
import {
  countModels,
  findModel,
  type ListingDeps,
  listEmbeddingModels,
  listEndpoints,
  listModels,
  listOwnModels,
  listProviders,
  listZeroRetention,
} from './models/models.ts'
import { type InterfaceDocument, showInterface } from './openapi.ts'
import type { Handler, Method, Operation, OperationTimes } from './operation.ts'
import { listProofKeys } from './proof.ts'
import { type ResumeDeps, resumeStream } from './resume.ts'

export interface OperationDeps
  extends InferenceDeps,
    ResumeDeps,
    GenerationDeps,
    CompactionDeps,
    ListingDeps,
    BatchDeps,
    FilesApiDeps {
  readonly store: Store
  readonly clock: Clock
  readonly changes: InvalidationBus
  readonly vault: Pick<Vault, 'seal'>
  readonly describeKey: SettingsDeps['describeKey']
  /** Display name of a provider; null when it has left the catalogue. */
  readonly providerName: (slug: string) => string | null
  readonly patternProblem: PatternProblem
  readonly offered: Offered
  /** Told of all operations. */
  readonly document: InterfaceDocument
}

/** A large batch may come over a slow line, and its results may go over one. */
const BATCH_TIMES: OperationTimes = { uploadMs: 30 * 60_000, requestMs: 40 * 60_000 }
/** A large file may come or go over a slow line. */
const FILE_TIMES: OperationTimes = { uploadMs: 30 * 60_000, requestMs: 40 * 60_000 }
/** A cancellation needs no body; some clients send an empty object. */
const CANCEL_MAX_BYTES = 1_024

/** Method, blank and path below `/v1`: the beginning of a row. */
type Address = `${Method} /${string}`

export function createOperations(deps: OperationDeps): readonly Operation[] {
  const withUsage = { ...deps, usage: new KeyUsage(deps) }
  const rows = [
    ...inferenceRows(deps),
    ...googleRows(deps),
    ...batchRows(deps),
    ...messageBatchRows(deps),
    ...fileRows(deps),
    ...readingRows(withUsage),
    ...accountRows(withUsage),
    ...ruleRows(deps),
    interfaceRow(deps),
    HELLO,
    ROOT,
  ]
  deps.document.describe(rows)
  return rows
}

function interfaceRow({ document }: OperationDeps): Operation {
  return {
    ...described('GET /openapi.json', 'getInterface', 'Get this description of the interface'),
    key: 'none',
    accept: 'none',
    bodyLimitBytes: 0,
    handler: showInterface(document),
  }
}

/** Claude Code asks at the root of its base URL, which may end in /v1. */
const HELLO: Operation = {
  ...described('GET /api/hello', 'sayHello', 'Learn that the gateway can be reached'),
  bases: ['', '/v1'],
  isQuiet: true,
  key: 'none',
  accept: 'none',
  bodyLimitBytes: 0,
  handler: (_, reply) => reply.json(200, { status: 'ok' }),
}

/** Other versions of it ask for the base URL itself. */
const ROOT: Operation = {
  ...HELLO,
  ...described('HEAD /', 'findRoot', 'Learn that the gateway can be reached, by its base URL'),
}

function inferenceRows(deps: OperationDeps): Operation[] {
  const responses = createResponsesDialect(deps.offered)
  const chat = createChatCompletions(deps.offered)
  const messages = createMessages(deps.offered)
  return [
    inference('/responses', 'createResponse', 'Create a response', responses, deps),
    own(
      'GET /responses/{id}',
      'resumeResponse',
      'Read a resumable stream again',
      resumeStream(responses, 'responses', deps),
    ),
    {
      ...row(
        'POST /responses/compact',
        'compactConversation',
        'Sum up a conversation',
        compactConversation(responses, deps),
        INFERENCE_BODY_MAX_BYTES,
      ),
      key: 'inference',
      dialect: responses,
    },
    {
      ...row(
        'POST /responses/input_tokens',
        'countInputTokens',
        'Estimate the input tokens of a response',
        countTokens(responses, deps, RESPONSES_COUNT),
        INFERENCE_BODY_MAX_BYTES,
      ),
      key: 'inference',
      dialect: responses,
      generates: false,
    },
    inference('/chat/completions', 'createChatCompletion', 'Create a chat completion', chat, deps),
    {
      ...own(
        'GET /chat/completions/{id}',
        'resumeChatCompletion',
        'Read a resumable chat stream again',
        resumeStream(chat, 'chat completions', deps),
      ),
      dialect: chat,
      generates: false,
    },
    embeddingsRow(deps),
    inference('/messages', 'createMessage', 'Create a message', messages, deps),
    {
      ...own(
        'GET /messages/{id}',
        'resumeMessage',
        'Read a resumable stream of a message again',
        resumeStream(messages, 'messages', deps),
      ),
      dialect: messages,
      generates: false,
    },
    {
      ...row(
        'POST /messages/count_tokens',
        'countMessageTokens',
        'Count the input tokens of a message',
        countTokens(messages, deps, MESSAGES_COUNT),
        INFERENCE_BODY_MAX_BYTES,
      ),
      key: 'inference',
      dialect: messages,
      generates: false,
    },
  ]
}

function embeddingsRow(deps: OperationDeps): Operation {
  const dialect = createEmbeddings(deps.offered)
  const handler = createEmbeddingsHandler(dialect, deps)
  const summary = 'Create embeddings'
  return {
    ...row('POST /embeddings', 'createEmbeddings', summary, handler, INFERENCE_BODY_MAX_BYTES),
    key: 'inference',
    dialect,
  }
}

function batchRows(deps: OperationDeps): Operation[] {
  return [
    {
      ...described('POST /batches', 'createBatch', 'Create a batch'),
      key: 'inference',
      accept: 'raw',
      media: 'json',
      bodyLimitBytes: deps.batchMaxBytes,
      times: BATCH_TIMES,
      handler: createBatch(deps),
    },
    own('GET /batches', 'listBatches', 'List batches', listBatches(deps)),
    {
      ...own('GET /batches/{id}', 'getBatch', 'Get a batch, with its results at the end', findBatch(deps)),
      times: BATCH_TIMES,
    },
    own('POST /batches/{id}/cancel', 'cancelBatch', 'Cancel a batch', cancelBatch(deps), CANCEL_MAX_BYTES),
    own('DELETE /batches/{id}', 'deleteBatch', 'Delete a batch', deleteBatch(deps)),
  ]
}

/** The batches of the Messages API. */
function messageBatchRows(deps: OperationDeps): Operation[] {
  const { batchMaxBytes } = deps
  const rows: Operation[] = [
    {
      ...described('POST /messages/batches', 'createMessageBatch', 'Create a batch of messages'),
      key: 'inference',
      accept: 'raw',
      media: 'json',
      bodyLimitBytes: batchMaxBytes,
      times: BATCH_TIMES,
      handler: createMessageBatch(deps),
    },
    own('GET /messages/batches', 'listMessageBatches', 'List batches of messages', listMessageBatches(deps)),
    own('GET /messages/batches/{id}', 'getMessageBatch', 'Get a batch of messages', findMessageBatch(deps)),
    {
      ...own(
        'GET /messages/batches/{id}/results',
        'getMessageBatchResults',
        'Get the results of a batch of messages',
        readMessageResults(deps),
      ),
      times: BATCH_TIMES,
    },
    own(
      'POST /messages/batches/{id}/cancel',
      'cancelMessageBatch',
      'Cancel a batch of messages',
      cancelMessageBatch(deps),
      CANCEL_MAX_BYTES,
    ),
    own(
      'DELETE /messages/batches/{id}',
      'deleteMessageBatch',
      'Delete a batch of messages',
      deleteMessageBatch(deps),
    ),
  ]
  const dialect = createMessages(deps.offered)
  return rows.map(row => ({ ...row, dialect, generates: false }))
}

function fileRows(deps: OperationDeps): Operation[] {
  return [
    {
      ...described('POST /files', 'createFile', 'Upload a file'),
      key: 'inference',
      accept: 'raw',
      media: 'any',
      bodyLimitBytes: deps.files.maxFileBytes + FORM_REST_BYTES,
      times: FILE_TIMES,
      handler: createFile(deps),
    },
    own('GET /files', 'listFiles', 'List files', listFiles(deps)),
    own('GET /files/{id}', 'getFile', 'Get a file', findFile(deps)),
    {
      ...own('GET /files/{id}/content', 'getFileContent', 'Get the bytes of a file', readFileContent(deps)),
      times: FILE_TIMES,
    },
    own('DELETE /files/{id}', 'deleteFile', 'Delete a file', deleteFile(deps)),
  ]
}

/** Both kinds of key may read these. */
function readingRows(deps: OperationDeps & KeyDeps): Operation[] {
  return [
    read('GET /generation', 'getGeneration', 'Get a generation', findGeneration(deps)),
    ...catalogueRows(deps),
    read('GET /proof-keys', 'listProofKeys', 'List the public keys of proofs', listProofKeys(deps.proofs)),
    read('GET /key', 'getCurrentKey', 'Get the current API key', showOwnKey(deps)),
    read('GET /auth/key', 'getCurrentKeyByOldPath', 'Get the current API key, as GET /key', showOwnKey(deps)),
  ]
}

function catalogueRows(deps: OperationDeps): Operation[] {
  const author = '/models/{author}/{slug}' as const
  const model = exceptGoogle(findModel(deps), findGoogleModel(deps))
  const models = exceptGoogle(listModels(deps), listGoogleModels(deps))
  return [
    read('GET /models', 'listModels', 'List models', models),
    read('GET /models/count', 'countModels', 'Count models', countModels(deps)),
    read('GET /models/user', 'listUserModels', 'List the models that the key may use', listOwnModels(deps)),
    read('GET /embeddings/models', 'listEmbeddingModels', 'List embedding models', listEmbeddingModels(deps)),
    {
      ...read('GET /models/{model}', 'getModelById', 'Get a model by its whole id', model),
      freeParam: 'model',
    },
    read(`GET ${author}`, 'getModel', 'Get a model', model),
    read('GET /model/{author}/{slug}', 'getModelByAlias', 'Get a model, as GET /models/…', model),
    read(`GET ${author}/endpoints`, 'listEndpoints', 'List the endpoints of a model', listEndpoints(deps)),
    read(
      'GET /endpoints/zdr',
      'listZeroRetentionEndpoints',
      'List the endpoints without data retention',
      listZeroRetention(deps),
    ),
    read('GET /providers', 'listProviders', 'List providers', listProviders(deps)),
  ]
}

function accountRows(deps: OperationDeps & KeyDeps): Operation[] {
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
function ruleRows(deps: OperationDeps): Operation[] {
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

function assignmentRows(deps: OperationDeps, noun: string, name: string, assignees: Assignees): Operation[] {
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

function inference(
  path: `/${string}`,
  id: string,
  summary: string,
  dialect: Dialect,
  deps: InferenceDeps,
): Operation {
  return {
    ...row(`POST ${path}`, id, summary, createInference(dialect, deps), INFERENCE_BODY_MAX_BYTES),
    key: 'inference',
    dialect,
  }
}

/** For the callers of models, about what is theirs. */
function own(address: Address, id: string, summary: string, handler: Handler, bytes = 0): Operation {
  return { ...row(address, id, summary, handler, bytes), key: 'inference' }
}

function read(address: Address, id: string, summary: string, handler: Handler): Operation {
  return { ...row(address, id, summary, handler, 0), key: 'any' }
}

function manage(address: Address, id: string, summary: string, handler: Handler, bodyLimitBytes = 0) {
  return { ...row(address, id, summary, handler, bodyLimitBytes), key: 'management' } as const
}

/** End users may be any text. */
function endUser(operation: Operation): Operation {
  return { ...operation, freeParam: 'user' }
}

function row(address: Address, id: string, summary: string, handler: Handler, bodyLimitBytes: number) {
  const accept: 'json' | 'none' = bodyLimitBytes > 0 ? 'json' : 'none'
  return { ...described(address, id, summary), bodyLimitBytes, accept, handler }
}

function described(address: Address, id: string, summary: string) {
  const [method, path] = address.split(' ') as [Method, string]
  return { id, summary, method, path, dialect: null }
}
