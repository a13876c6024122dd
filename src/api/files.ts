/**
 * /files: uploads, lists, shows, downloads and deletes the files of the key's workspace, in the form that OpenAI's
 * clients use.
 */

import { GatewayError, refuseField } from '../base/errors.ts'
import type { Uploads } from '../batches/uploads.ts'
import { cleanFilename } from '../features/files/filename.ts'
import type { Files } from '../features/files/files.ts'
import { type FormPart, fieldText, partSource, readForm } from '../features/files/multipart.ts'
import { CLIENT_LIST_DEFAULT } from '../protocol/limits.ts'
import { FILE_PURPOSES, type FilePurpose } from '../protocol/management/files.ts'
import type { KeyRecord } from '../protocol/management/keys.ts'
import type { FileFilter, FileRecord, WorkspaceScope } from '../storage/files.ts'
import { DEFAULT_WORKSPACE_ID, type Store } from '../storage/store.ts'
import {
  type BatchOutput,
  type OutputSizes,
  openOutput,
  outputDocument,
  outputNameOf,
} from './batches/batch-outputs.ts'
import { streamChunks } from './chunk-stream.ts'
import { limitOf, listDocument, parameter } from './management/paging.ts'
import type { ApiRequest, Handler, RawHandler } from './operation.ts'

export interface FilesApiDeps {
  readonly files: Pick<Files, 'create' | 'find' | 'list' | 'read' | 'remove' | 'maxFileBytes'>
  /** Uploads in progress. */
  readonly fileUploads: Pick<Uploads, 'receive'>
  readonly store: Pick<Store, 'batches'>
  readonly outputSizes: OutputSizes
}

/** Space in a body for other fields, headers and separators. */
export const FORM_OVERHEAD_BYTES = 64 * 1024
/** The purpose of a form without one: clients of Anthropic's API send none. */
const DEFAULT_PURPOSE: FilePurpose = 'user_data'
/** Files with these purposes contain data for machines, so search skips them. */
const UNSEARCHED_PURPOSES: ReadonlySet<string> = new Set<FilePurpose>([
  'batch',
  'evals',
  'fine-tune',
  'vision',
])
const PURPOSE_MAX_BYTES = 64
const MEDIA_TYPE = /^[A-Za-z0-9][\w.+-]{0,63}\/[A-Za-z0-9][\w.+-]{0,127}(?=;|$)/

export function createFile({ files, fileUploads }: FilesApiDeps): RawHandler {
  return async ({ body, headers, key }, reply) => {
    const owner = { key, announcedBytes: body.contentLength }
    const upload = await fileUploads.receive(owner, reader => body.read(reader))
    try {
      const { file: bytes } = upload
      const form = formOf(await readForm(bytes, headers.get('content-type')))
      const purpose =
        form.purpose === null
          ? DEFAULT_PURPOSE
          : purposeOf(await fieldText(bytes, form.purpose, PURPOSE_MAX_BYTES))
      const { descriptor } = bytes
      const { start, end } = form.file
      const record = await files.create(
        scopeOf(key),
        {
          filename: cleanFilename(form.file.filename ?? '', 'file'),
          purpose,
          mediaType: MEDIA_TYPE.exec(form.file.mediaType ?? '')?.[0].toLowerCase() ?? null,
          source: partSource(bytes, form.file),
          text: UNSEARCHED_PURPOSES.has(purpose) ? null : { descriptor, start, bytes: end - start },
        },
        key.hash,
      )
      reply.json(200, fileDocument(record))
    } finally {
      await upload.close()
    }
  }
}

/** Unknown fields are ignored, as clients of such interfaces expect. */
function formOf(parts: readonly FormPart[]): { readonly file: FormPart; readonly purpose: FormPart | null } {
  const fieldNamed = (name: string): FormPart | undefined => {
    const [part, ...more] = parts.filter(part => part.name === name)
    if (more.length > 0) throw refuseField(name, 'must not be given twice')
    return part
  }
  if (parts.some(({ name }) => name.startsWith('expires_after')))
    throw refuseField(
      'expires_after',
      'is not supported: files do not expire; delete the file when it is no longer needed',
    )
  const [file, purpose] = [fieldNamed('file'), fieldNamed('purpose')]
  if (file === undefined || file.filename === null) throw refuseField('file', 'must be a file with a name')
  if (purpose !== undefined && purpose.filename !== null)
    throw refuseField('purpose', 'must be a text field, not a file')
  return { file, purpose: purpose ?? null }
}

function purposeOf(text: string): string {
  const purpose = FILE_PURPOSES.find(known => known === text)
  if (purpose !== undefined) return purpose
  throw refuseField('purpose', `must be one of ${FILE_PURPOSES.join(', ')}`)
}

export function listFiles({ files }: FilesApiDeps): Handler {
  return async ({ query, key }, reply) => {
    const limit = limitOf(query, CLIENT_LIST_DEFAULT)
    const page = await files.list(filterOf(query, key), limit)
    if (page === null) throw refuseField('after', 'must be the id of a file in this workspace')
    reply.json(200, { object: 'list', ...listDocument(page.items.map(fileDocument), page.hasMore) })
  }
}

function filterOf(query: URLSearchParams, key: KeyRecord): FileFilter {
  const after = parameter(query, 'after')
  const purpose = parameter(query, 'purpose')
  const order = parameter(query, 'order')
  if (order !== undefined && order !== 'asc' && order !== 'desc')
    throw refuseField('order', 'must be asc or desc')
  return {
    ...scopeOf(key),
    ...(after === undefined ? {} : { after }),
    ...(purpose === undefined ? {} : { purpose: purposeOf(purpose) }),
    oldestFirst: order === 'asc',
  }
}

export function findFile(deps: FilesApiDeps): Handler {
  return async (request, reply) => {
    const output = await outputOf(deps, request)
    reply.json(
      200,
      output === null
        ? fileDocument(await requireFile(deps, request))
        : await outputDocument(output, deps.outputSizes),
    )
  }
}

/**
 * The bytes are always sent with a neutral type, regardless of the stored one, so that no browser renders an uploaded
 * page.
 */
export function readFileContent(deps: FilesApiDeps): Handler {
  return async (request, reply) => {
    const output = await outputOf(deps, request)
    const file = output ?? (await requireFile(deps, request))
    const chunks =
      output === null
        ? deps.files.read(file as FileRecord, request.key.hash)
        : output.chunks(request.context.signal)
    await streamChunks(
      reply,
      request.context.signal,
      'application/octet-stream',
      chunks[Symbol.asyncIterator](),
      () => {
        reply.header('X-Content-Type-Options', 'nosniff')
        reply.header('Content-Disposition', disposition(file.filename))
      },
    )
  }
}

/** RFC 6266: an ASCII name for old clients, then the full name. */
function disposition(filename: string): string {
  const plain = filename.replaceAll(/[^\w.() -]/g, '_')
  const encoded = encodeURIComponent(filename).replaceAll(
    /['()*]/g,
    character => `%${character.charCodeAt(0).toString(16).toUpperCase()}`,
  )
  return `attachment; filename="${plain}"; filename*=UTF-8''${encoded}`
}

export function deleteFile(deps: FilesApiDeps): Handler {
  const { files } = deps
  return async (request, reply) => {
    const { params, key } = request
    const id = params.get('id') ?? ''
    const output = await outputOf(deps, request)
    if (output !== null) {
      throw new GatewayError(
        'conflict',
        `The file belongs to a batch: DELETE /v1/batches/${output.batch.id} deletes both`,
      )
    }
    if (!(await files.remove(scopeOf(key), id, key.hash))) throw fileNotFound()
    reply.json(200, { id, object: 'file', deleted: true })
  }
}

/** The results of a batch if the path names them as a file; null: it is the id of another file. @throws GatewayError */
async function outputOf({ store }: FilesApiDeps, { params, key }: ApiRequest): Promise<BatchOutput | null> {
  const name = outputNameOf(params.get('id') ?? '')
  if (name === null) return null
  const { organizationId, workspaceId } = scopeOf(key)
  const batch = await store.batches.find(organizationId, workspaceId, name.batchId)
  const output = batch === null ? null : openOutput(store, batch, name.kind)
  if (output === null) throw fileNotFound()
  return output
}

/** Finds the file of the path. @throws GatewayError `not_found` */
async function requireFile({ files }: FilesApiDeps, { params, key }: ApiRequest): Promise<FileRecord> {
  const file = await files.find(scopeOf(key), params.get('id') ?? '')
  if (file === null) throw fileNotFound()
  return file
}

function fileNotFound(): GatewayError {
  return new GatewayError('not_found', 'File not found')
}

function scopeOf({ organizationId, workspaceId }: KeyRecord): WorkspaceScope {
  return { organizationId, workspaceId: workspaceId ?? DEFAULT_WORKSPACE_ID }
}

const FILE_STATUSES = { indexed: 'processed', none: 'uploaded', unreadable: 'error' } as const

/** A file in the form of OpenAI's clients. */
function fileDocument({ id, bytes, createdAt, filename, purpose, text }: FileRecord) {
  return {
    id,
    object: 'file',
    bytes,
    created_at: Math.floor(Date.parse(createdAt) / 1000),
    expires_at: null,
    filename,
    purpose,
    status: FILE_STATUSES[text],
    status_details:
      text === 'unreadable' ? 'The text of the file could not be read, so search does not find it' : null,
  }
}
