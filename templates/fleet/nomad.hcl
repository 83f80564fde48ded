# Several allocations work on a plan. The host must have git, bubblewrap and relay; set the variables below.
job "relay" {
  type = "batch"

  group "worker" {
    count = 3

    restart {
      attempts = 20
      interval = "8h"
      delay    = "30s"
      mode     = "delay"
    }

    task "work" {
      driver      = "exec"
      kill_signal = "SIGINT"
      kill_timeout = "5m"

      config {
        command = "/bin/sh"
        args    = ["-ceu", "[ -e repo/.git ] || git clone --branch \"$RELAY_BRANCH\" -- \"$RELAY_REMOTE\" repo; cd repo; exec relay work --phase all"]
      }

      env {
        RELAY_REMOTE = "https://example.invalid/you/project.git"
        RELAY_BRANCH = "main"
      }

      template {
        destination = "secrets/key.env"
        env         = true
        data        = "ANTHROPIC_API_KEY={{ with nomadVar \"nomad/jobs/relay\" }}{{ .anthropic_api_key }}{{ end }}"
      }

      resources {
        cpu    = 1000
        memory = 4096
      }
    }
  }
}
