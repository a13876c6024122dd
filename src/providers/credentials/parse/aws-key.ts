/** AWS keys: IAM access keys and API keys, as JSON with the values that the address needs. Pure. */
import { API_KEY, API_KEY_EXPECTED, KeyFields, keyError, looksLikeJson, parseKeyJson } from './key-json.ts'
import { type PlainKey, plainKey } from './plain-key.ts'

export interface AwsKey {
  readonly kind: 'aws'
  readonly accessKeyId: string
  readonly secretAccessKey: string
  /** AWS region of the key; part of the provider's host name. */
  readonly awsRegion: string
  /** Workspace of Claude on AWS; null for other providers. */
  readonly workspaceId: string | null
  readonly region: null
  readonly secrets: readonly string[]
}

/** An API key for a workspace of Claude on AWS. */
export interface AwsWorkspaceKey {
  readonly kind: 'aws-workspace'
  readonly apiKey: string
  readonly awsRegion: string
  readonly workspaceId: string
  readonly region: null
  readonly secrets: readonly string[]
}

/** A user's access key (AKIA). Session keys (ASIA) need a token and expire within hours. */
const ACCESS_KEY_ID = /^AKIA[A-Z0-9]{12,124}$/
const SECRET_ACCESS_KEY = /^[A-Za-z0-9/+=]{16,128}$/
const AWS_REGION = /^[a-z]{2,3}(?:-[a-z]{2,12}){1,2}-\d{1,2}$/
const WORKSPACE_ID = /^[A-Za-z0-9_-]{1,128}$/

/** An API key of Bedrock, or a user's access key as JSON. @throws GatewayError `invalid_request` */
export function parseAwsKey(text: string): PlainKey | AwsKey {
  if (!looksLikeJson(text)) return plainKey(text)
  return accessKey(new KeyFields(parseKeyJson(text)).only(['accessKeyId', 'secretAccessKey', 'region']), null)
}

/** @throws GatewayError `invalid_request` */
export function parseClaudeOnAwsKey(text: string): AwsKey | AwsWorkspaceKey {
  if (!looksLikeJson(text)) {
    throw keyError('must be JSON with workspace_id, region, and api_key or an AWS access key')
  }
  const fields = new KeyFields(parseKeyJson(text))
  const workspaceId = fields.text('workspace_id', WORKSPACE_ID, 'the id of a workspace (wrkspc_…)')
  if (!fields.has('api_key')) {
    return accessKey(fields.only(['accessKeyId', 'secretAccessKey', 'region', 'workspace_id']), workspaceId)
  }
  fields.only(['api_key', 'region', 'workspace_id'])
  const apiKey = fields.text('api_key', API_KEY, API_KEY_EXPECTED)
  const awsRegion = readRegion(fields)
  return { kind: 'aws-workspace', apiKey, awsRegion, workspaceId, region: null, secrets: [apiKey] }
}

function accessKey(fields: KeyFields, workspaceId: string | null): AwsKey {
  const secretAccessKey = fields.text('secretAccessKey', SECRET_ACCESS_KEY, 'a secret access key')
  const accessKeyId = fields.text('accessKeyId', ACCESS_KEY_ID, 'the id of an IAM user access key (AKIA…)')
  return {
    kind: 'aws',
    accessKeyId,
    secretAccessKey,
    awsRegion: readRegion(fields),
    workspaceId,
    region: null,
    secrets: [secretAccessKey, accessKeyId],
  }
}

function readRegion(fields: KeyFields): string {
  return fields.text('region', AWS_REGION, 'a region such as us-east-1')
}
