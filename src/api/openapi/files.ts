/** The interface description of files. Pure. */
import { Type } from '@sinclair/typebox'
import { count, nullableText, oneOf, unixSeconds } from '../../protocol/json/schema.ts'
import { CLIENT_LIST_DEFAULT, PAGE_MAX } from '../../protocol/limits.ts'
import { FILE_PURPOSES } from '../../protocol/management/files.ts'
import { answer, listById, query, tagged, text } from './description.ts'

const purpose = oneOf(...FILE_PURPOSES)

export const FileAnswer = Type.Object({
  id: text,
  object: Type.Literal('file'),
  bytes: count,
  created_at: unixSeconds,
  expires_at: Type.Null(),
  filename: text,
  purpose: text,
  status: oneOf('processed', 'uploaded', 'error'),
  status_details: nullableText,
})

const FILE_EXAMPLE = {
  id: 'gw_file_Tzj7Kt3rbMo4uCZEFCh4mPqR',
  object: 'file',
  bytes: 35,
  created_at: 1795398185,
  expires_at: null,
  filename: 'notes.txt',
  purpose: 'user_data',
  status: 'processed',
  status_details: null,
}

const UploadForm = Type.Object({
  file: Type.Unsafe<string>({
    type: 'string',
    contentMediaType: 'application/octet-stream',
    description: 'The bytes, as a part with a file name.',
  }),
  purpose: Type.Optional(purpose),
})

export const FILES = tagged('Files', {
  createFile: {
    text: 'All keys of a workspace see the same files.',
    body: {
      media: 'multipart/form-data',
      schema: UploadForm,
      examples: { notes: { file: 'The bicycle shed is painted ochre.', purpose: 'user_data' } },
    },
    answers: { 200: answer(FileAnswer, 'The new file.', FILE_EXAMPLE) },
    failures: ['conflict'],
  },
  listFiles: {
    text: 'Newest first, unless order is asc.',
    parameters: [
      query(
        'limit',
        Type.Integer({ minimum: 1, maximum: PAGE_MAX, default: CLIENT_LIST_DEFAULT }),
        'Maximum number of files.',
      ),
      query('after', text, 'last_id of the previous page.'),
      query('order', oneOf('asc', 'desc'), 'asc: oldest first.'),
      query('purpose', purpose, 'Only files of this purpose.'),
    ],
    answers: { 200: listById(FileAnswer, 'A page of files.', FILE_EXAMPLE) },
  },
  getFile: { answers: { 200: answer(FileAnswer, 'The file.', FILE_EXAMPLE) } },
  getFileContent: {
    answers: {
      200: {
        text: 'The bytes of the file, for download.',
        content: { media: 'application/octet-stream', schema: Type.Unknown() },
      },
    },
  },
  deleteFile: {
    answers: {
      200: answer(
        Type.Object({ id: text, object: Type.Literal('file'), deleted: Type.Literal(true) }),
        'It was deleted.',
        { id: FILE_EXAMPLE.id, object: 'file', deleted: true },
      ),
    },
  },
})
