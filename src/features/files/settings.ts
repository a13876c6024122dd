/** Settings of stored files. Pure. */
import { type Static, Type } from '@sinclair/typebox'
import {
  Address,
  type Frozen,
  filesEndpoint,
  filesUrl,
  group,
  nullable,
  setting,
} from '../../base/settings/setting.ts'

export const filesSettings = group({
  url: setting(
    Address,
    'where the bytes of [files](files.md) are stored: `file:FOLDER`, created with mode 0700, or `s3://BUCKET/PREFIX`. Several instances need a bucket, or a folder that all of them share',
    { default: 'file:./data/files', ...filesUrl },
  ),
  endpoint: setting(
    nullable(Address),
    'URL of an S3-compatible server such as MinIO, with the bucket in the path. If unset, AWS in `region`',
    filesEndpoint,
  ),
  region: setting(Type.String({ pattern: '^[a-z0-9-]{1,64}$' }), 'the region of the bucket', {
    default: 'us-east-1',
  }),
  accessKeyId: setting(
    nullable(Address),
    'the access key id for the bucket; required with `s3://`. Write `${NAME}` to take it from the environment',
  ),
  secretAccessKey: setting(nullable(Address), 'the secret of that access key'),
  maxFileBytes: setting(
    Type.Integer({ minimum: 1_024, maximum: 1_073_741_824 }),
    "maximum size of a file, in bytes; a larger one is rejected with 413. During the upload it is on this machine's disk, in `uploads` next to the spool: at most eight times this size per serve thread, and a quarter of that per API key",
    { default: 104_857_600 },
  ),
  maxFiles: setting(
    Type.Integer({ minimum: 1, maximum: 10_000_000 }),
    'maximum number of files per workspace; further ones are rejected with 409',
    { default: 10_000 },
  ),
  maxBytes: setting(
    Type.Integer({ minimum: 1_024, maximum: Number.MAX_SAFE_INTEGER }),
    'maximum total bytes of files per workspace; further ones are rejected with 409',
    { default: 10_737_418_240 },
  ),
})

export interface FileSettings extends Frozen<Static<typeof filesSettings>> {}
