/**
 * The single table of all operations: a path that is not listed here does not exist. The OpenAPI document is generated
 * from it. A new operation is one row and one handler.
 */

import { createChatCompletions } from '../dialects/chat-completions.ts'
import type { Dialect } from '../dialects/dialect.ts'
import { createEmbeddings } from '../dialects/embeddings.ts'
import { createMessages } from '../dialects/messages.ts'
import { createResponsesDialect } from '../dialects/responses.ts'
import type { Offering } from '../protocol/json/request-parser.ts'
import { INFERENCE_BODY_MAX_BYTES } from '../protocol/limits.ts'
import type { Store } from '../storage/store.ts'
import {
  type BatchDeps,
  cancelBatch,
  cancelBatchOfWorkspace,
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
import { compactConversation } from './compaction.ts'
import { countTokens, MESSAGES_COUNT, RESPONSES_COUNT } from './count-tokens.ts'
import { createEmbeddingsHandler } from './embeddings.ts'
import {
  createFile,
  deleteFile,
  type FilesApiDeps,
  FORM_OVERHEAD_BYTES,
  findFile,
  listFiles,
  readFileContent,
} from './files.ts'
import { findGeneration, type GenerationDeps } from './generation.ts'
import {
  exceptGoogle,
  findModel as findGoogleModel,
  googleRows,
  listModels as listGoogleModels,
  refuseGoogle,
} from './google.ts'
import { createInference } from './inference.ts'
import type { InferenceParts } from './inference-parts.ts'
import { KeyUsage } from './management/key-usage.ts'
import { showOwnKey } from './management/keys.ts'
import { managementRows } from './management/operations.ts'
import type { ManagementParts } from './management/parts.ts'
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
import { type InterfaceDocument, type ReferenceTerms, referenceRows, showInterface } from './openapi.ts'
import type { Operation, OperationTimes } from './operation.ts'
import { anyKey, apiKey, managementKey, rowStart } from './operation-rows.ts'
import { listProofKeys } from './proof.ts'
import { resumeStream } from './resume.ts'

interface OperationDeps
  extends InferenceParts,
    GenerationDeps,
    ListingDeps,
    BatchDeps,
    FilesApiDeps,
    Omit<ManagementParts, 'usage'> {
  readonly store: Store
  readonly offered: Offering
  /** Gets the rows of all operations. */
  readonly document: InterfaceDocument
  /** Absent: the public port has no reference. */
  readonly reference?: ReferenceTerms
}

/** A large batch may be uploaded, and its results downloaded, over a slow connection. */
const BATCH_TIMES: OperationTimes = { uploadMs: 30 * 60_000, requestMs: 40 * 60_000 }
/** A large file may be transferred over a slow connection. */
const FILE_TIMES: OperationTimes = { uploadMs: 30 * 60_000, requestMs: 40 * 60_000 }
/** A cancellation needs no body; some clients send an empty object. */
const CANCEL_MAX_BYTES = 1_024

export function createOperations(deps: OperationDeps): readonly Operation[] {
  const withUsage = { ...deps, usage: new KeyUsage(deps) }
  const rows = [
    ...inferenceRows(deps),
    ...googleRows(deps),
    ...batchRows(deps),
    ...messageBatchRows(deps),
    ...fileRows(deps),
    ...anyKeyRows(withUsage),
    ...managementRows(withUsage),
    interfaceRow(deps),
    HELLO_ROW,
    ROOT_ROW,
  ]
  deps.document.describe(rows)
  return deps.reference === undefined ? rows : [...rows, ...referenceRows(deps.document, deps.reference)]
}

function interfaceRow({ document }: OperationDeps): Operation {
  return {
    ...rowStart('GET /openapi.json', 'getInterface', 'Get this description of the interface'),
    key: 'none',
    accept: 'none',
    bodyLimitBytes: 0,
    handler: showInterface(document),
  }
}

/** Claude Code requests the root of its base URL, which may end in /v1. */
const HELLO_ROW: Operation = {
  ...rowStart('GET /api/hello', 'sayHello', 'Check that the gateway can be reached'),
  bases: ['', '/v1'],
  isQuiet: true,
  key: 'none',
  accept: 'none',
  bodyLimitBytes: 0,
  handler: (_, reply) => reply.json(200, { status: 'ok' }),
}

/** Other versions of Claude Code request the base URL itself. */
const ROOT_ROW: Operation = {
  ...HELLO_ROW,
  ...rowStart('HEAD /', 'findRoot', 'Check that the gateway can be reached at its base URL'),
}

function inferenceRows(deps: OperationDeps): Operation[] {
  const responses = createResponsesDialect(deps.offered)
  const chat = createChatCompletions(deps.offered)
  const messages = createMessages(deps.offered)
  return [
    generationRow('/responses', 'createResponse', 'Create a response', responses, deps),
    apiKey(
      'GET /responses/{id}',
      'resumeResponse',
      'Read a resumable stream again',
      resumeStream(responses, 'responses', deps),
    ),
    {
      ...apiKey(
        'POST /responses/compact',
        'compactConversation',
        'Summarize a conversation',
        compactConversation(responses, deps),
        INFERENCE_BODY_MAX_BYTES,
      ),
      dialect: responses,
    },
    {
      ...apiKey(
        'POST /responses/input_tokens',
        'countInputTokens',
        'Count the input tokens of a response',
        countTokens(responses, deps, RESPONSES_COUNT),
        INFERENCE_BODY_MAX_BYTES,
      ),
      dialect: responses,
      generates: false,
    },
    generationRow('/chat/completions', 'createChatCompletion', 'Create a chat completion', chat, deps),
    {
      ...apiKey(
        'GET /chat/completions/{id}',
        'resumeChatCompletion',
        'Read a resumable chat stream again',
        resumeStream(chat, 'chat completions', deps),
      ),
      dialect: chat,
      generates: false,
    },
    embeddingsRow(deps),
    generationRow('/messages', 'createMessage', 'Create a message', messages, deps),
    {
      ...apiKey(
        'GET /messages/{id}',
        'resumeMessage',
        'Read a resumable message stream again',
        resumeStream(messages, 'messages', deps),
      ),
      dialect: messages,
      generates: false,
    },
    {
      ...apiKey(
        'POST /messages/count_tokens',
        'countMessageTokens',
        'Count the input tokens of a message',
        countTokens(messages, deps, MESSAGES_COUNT),
        INFERENCE_BODY_MAX_BYTES,
      ),
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
    ...apiKey('POST /embeddings', 'createEmbeddings', summary, handler, INFERENCE_BODY_MAX_BYTES),
    dialect,
  }
}

function batchRows(deps: OperationDeps): Operation[] {
  return [
    {
      ...rowStart('POST /batches', 'createBatch', 'Create a batch'),
      key: 'inference',
      accept: 'raw',
      media: 'json',
      bodyLimitBytes: deps.batchMaxBytes,
      times: BATCH_TIMES,
      handler: createBatch(deps),
    },
    apiKey('GET /batches', 'listBatches', 'List batches', exceptGoogle(listBatches(deps), refuseGoogle)),
    {
      ...apiKey(
        'GET /batches/{id}',
        'getBatch',
        'Get a batch, with its results once it has ended',
        findBatch(deps),
      ),
      times: BATCH_TIMES,
    },
    apiKey('POST /batches/{id}/cancel', 'cancelBatch', 'Cancel a batch', cancelBatch(deps), CANCEL_MAX_BYTES),
    apiKey('DELETE /batches/{id}', 'deleteBatch', 'Delete a batch', deleteBatch(deps)),
    managementKey('operator')(
      'POST /workspaces/{ref}/batches/{id}/cancel',
      'cancelBatchOfWorkspace',
      'Cancel a batch in a workspace',
      cancelBatchOfWorkspace(deps),
      CANCEL_MAX_BYTES,
    ),
  ]
}

/** The batches of the Messages API. */
function messageBatchRows(deps: OperationDeps): Operation[] {
  const { batchMaxBytes } = deps
  const rows: Operation[] = [
    {
      ...rowStart('POST /messages/batches', 'createMessageBatch', 'Create a batch of messages'),
      key: 'inference',
      accept: 'raw',
      media: 'json',
      bodyLimitBytes: batchMaxBytes,
      times: BATCH_TIMES,
      handler: createMessageBatch(deps),
    },
    apiKey(
      'GET /messages/batches',
      'listMessageBatches',
      'List batches of messages',
      listMessageBatches(deps),
    ),
    apiKey(
      'GET /messages/batches/{id}',
      'getMessageBatch',
      'Get a batch of messages',
      findMessageBatch(deps),
    ),
    {
      ...apiKey(
        'GET /messages/batches/{id}/results',
        'getMessageBatchResults',
        'Get the results of a batch of messages',
        readMessageResults(deps),
      ),
      times: BATCH_TIMES,
    },
    apiKey(
      'POST /messages/batches/{id}/cancel',
      'cancelMessageBatch',
      'Cancel a batch of messages',
      cancelMessageBatch(deps),
      CANCEL_MAX_BYTES,
    ),
    apiKey(
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
      ...rowStart('POST /files', 'createFile', 'Upload a file'),
      key: 'inference',
      accept: 'raw',
      media: 'any',
      bodyLimitBytes: deps.files.maxFileBytes + FORM_OVERHEAD_BYTES,
      times: FILE_TIMES,
      handler: createFile(deps),
    },
    apiKey('GET /files', 'listFiles', 'List files', exceptGoogle(listFiles(deps), refuseGoogle)),
    apiKey('GET /files/{id}', 'getFile', 'Get a file', findFile(deps)),
    {
      ...apiKey(
        'GET /files/{id}/content',
        'getFileContent',
        'Get the bytes of a file',
        readFileContent(deps),
      ),
      times: FILE_TIMES,
    },
    apiKey('DELETE /files/{id}', 'deleteFile', 'Delete a file', deleteFile(deps)),
  ]
}

/** Both kinds of keys may read these. */
function anyKeyRows(deps: OperationDeps & ManagementParts): Operation[] {
  return [
    anyKey('GET /generation', 'getGeneration', 'Get a generation', findGeneration(deps)),
    ...catalogueRows(deps),
    anyKey('GET /proof-keys', 'listProofKeys', 'List the public keys for proofs', listProofKeys(deps.proofs)),
    anyKey('GET /key', 'getCurrentKey', 'Get the current API key', showOwnKey(deps)),
    anyKey(
      'GET /auth/key',
      'getCurrentKeyByOldPath',
      'Get the current API key (the old path of GET /key)',
      showOwnKey(deps),
    ),
  ]
}

function catalogueRows(deps: OperationDeps): Operation[] {
  const author = '/models/{author}/{slug}' as const
  const model = exceptGoogle(findModel(deps), findGoogleModel(deps))
  const models = exceptGoogle(listModels(deps), listGoogleModels(deps))
  return [
    anyKey('GET /models', 'listModels', 'List models', models),
    anyKey('GET /models/count', 'countModels', 'Count models', countModels(deps)),
    anyKey('GET /models/user', 'listUserModels', 'List the models that the key may use', listOwnModels(deps)),
    anyKey(
      'GET /embeddings/models',
      'listEmbeddingModels',
      'List embedding models',
      listEmbeddingModels(deps),
    ),
    {
      ...anyKey('GET /models/{model}', 'getModelById', 'Get a model by its whole id', model),
      freeParam: 'model',
    },
    anyKey(`GET ${author}`, 'getModel', 'Get a model', model),
    anyKey(
      'GET /model/{author}/{slug}',
      'getModelByAlias',
      'Get a model (another path of GET /models/…)',
      model,
    ),
    anyKey(`GET ${author}/endpoints`, 'listEndpoints', 'List the endpoints of a model', listEndpoints(deps)),
    anyKey(
      'GET /endpoints/zdr',
      'listZeroRetentionEndpoints',
      'List the endpoints without data retention',
      listZeroRetention(deps),
    ),
    anyKey('GET /providers', 'listProviders', 'List providers', listProviders(deps)),
  ]
}

function generationRow(
  path: `/${string}`,
  id: string,
  summary: string,
  dialect: Dialect,
  deps: InferenceParts,
): Operation {
  return {
    ...apiKey(`POST ${path}`, id, summary, createInference(dialect, deps), INFERENCE_BODY_MAX_BYTES),
    dialect,
  }
}
