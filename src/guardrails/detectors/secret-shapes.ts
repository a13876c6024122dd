/** The forms in which providers issue keys: a name and an expression of bounded length. Pure data. */

export interface SecretShape {
  readonly name: string
  /** Source of an expression that begins with letters or digits of its own: no class, no repeat. */
  readonly source: string
}

export const SECRET_SHAPES: readonly SecretShape[] = [
  { name: 'anthropic_key', source: 'sk-ant-[\\w-]{20,200}' },
  { name: 'openrouter_key', source: 'sk-or-v1-[0-9a-f]{64}' },
  { name: 'gateway_key', source: 'sk-gw-(?:v1|mgmt)-[0-9a-f]{64}' },
  { name: 'openai_key', source: 'sk-(?:proj|svcacct|admin|None)-[\\w-]{20,200}' },
  { name: 'openai_key', source: 'sk-[A-Za-z0-9]{20,64}' },
  { name: 'stripe_key', source: '[srp]k_(?:live|test)_[A-Za-z0-9]{16,128}' },
  { name: 'stripe_webhook_secret', source: 'whsec_[A-Za-z0-9+/]{24,64}' },
  { name: 'aws_access_key', source: 'A(?:KIA|SIA|BIA|CCA)[A-Z2-7]{16}(?![A-Za-z0-9])' },
  { name: 'google_api_key', source: 'AIza[\\w-]{35}' },
  { name: 'google_oauth_token', source: 'ya29\\.[\\w-]{20,256}' },
  { name: 'google_client_secret', source: 'GOCSPX-[\\w-]{28}' },
  { name: 'github_token', source: 'gh[pousr]_[A-Za-z0-9]{36,255}' },
  { name: 'github_token', source: 'github_pat_[A-Za-z0-9_]{22,255}' },
  { name: 'gitlab_token', source: 'gl(?:pat|ptt|dt|rt|cbt)-[\\w-]{20,64}' },
  { name: 'slack_token', source: 'xox[abeoprs]-[A-Za-z0-9-]{10,250}' },
  { name: 'slack_app_token', source: 'xapp-\\d-[A-Za-z0-9-]{20,200}' },
  { name: 'npm_token', source: 'npm_[A-Za-z0-9]{36}' },
  { name: 'pypi_token', source: 'pypi-[\\w-]{50,255}' },
  { name: 'hugging_face_token', source: 'hf_[A-Za-z0-9]{30,64}' },
  { name: 'replicate_token', source: 'r8_[A-Za-z0-9]{37}' },
  { name: 'groq_key', source: 'gsk_[A-Za-z0-9]{40,64}' },
  { name: 'xai_key', source: 'xai-[A-Za-z0-9]{60,128}' },
  { name: 'perplexity_key', source: 'pplx-[A-Za-z0-9]{32,64}' },
  { name: 'fireworks_key', source: 'fw_[A-Za-z0-9]{20,40}(?![A-Za-z0-9])' },
  { name: 'sendgrid_key', source: 'SG\\.[\\w-]{16,32}\\.[\\w-]{32,64}' },
  { name: 'twilio_key', source: 'SK[0-9a-f]{32}(?![A-Za-z0-9])' },
  { name: 'mailgun_key', source: 'key-[0-9a-f]{32}(?![A-Za-z0-9])' },
  { name: 'digitalocean_token', source: 'do[oprt]_v1_[0-9a-f]{64}' },
  { name: 'databricks_token', source: 'dapi[0-9a-f]{32}(?![A-Za-z0-9])' },
  { name: 'shopify_token', source: 'shp(?:at|ca|pa|ss)_[0-9a-fA-F]{32}' },
  { name: 'linear_key', source: 'lin_api_[A-Za-z0-9]{40}' },
  { name: 'notion_token', source: 'ntn_[A-Za-z0-9]{40,60}' },
  { name: 'vault_token', source: 'hvs\\.[\\w-]{24,200}' },
  { name: 'age_secret_key', source: 'AGE-SECRET-KEY-1[A-Z0-9]{58}' },
  { name: 'telegram_bot_token', source: '\\d{8,10}:AA[\\w-]{33}(?![\\w-])' },
  { name: 'json_web_token', source: 'eyJ[\\w-]{10,1000}\\.eyJ[\\w-]{10,2000}(?:\\.[\\w-]{10,700})?' },
]

/** A quick check: matches if the text may have any of the shapes above. */
export const SECRET_GLANCE =
  /sk-|[srp]k_[lt]|whsec_|A(?:KIA|SIA|BIA|CCA)[A-Z2-7]|AIza|ya29\.|GOCSPX|gh[pousr]_|github_pat|gl(?:pat|ptt|dt|rt|cbt)-|xox[abeoprs]-|xapp-|npm_|pypi-|hf_|r8_|gsk_|xai-|pplx-|fw_|SG\.|SK[0-9a-f]{8}|key-[0-9a-f]{8}|do[oprt]_v1_|dapi[0-9a-f]{8}|shp(?:at|ca|pa|ss)_|lin_api_|ntn_|hvs\.|AGE-S|:AA|eyJ/
