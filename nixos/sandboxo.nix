# services.sandboxo: one host with the appliance and zone local1.
#
# Neither Redis nor an object store is needed.
{ config, lib, pkgs, ... }:

let
  cfg = config.services.sandboxo;
  json = pkgs.formats.json { };
  settings = lib.recursiveUpdate {
    inherit (cfg) domain region;
    host = cfg.address;
    port = cfg.port;
    state = "/var/lib/sandboxo";
    zone.runsc = "${cfg.runsc}/bin/runsc";
  } cfg.settings
  // lib.optionalAttrs (cfg.tokenFile != null) {
    token._file = "/run/credentials/sandboxo.service/token";
  };
  configFile = json.generate "sandboxo.json" (lib.filterAttrs (_: value: value != null) settings);
in
{
  options.services.sandboxo = {
    enable = lib.mkEnableOption "sandboxo, sandboxes for untrusted code";

    package = lib.mkOption {
      type = lib.types.package;
      description = "The package with bin/sandboxo and bin/sandboxo-agent.";
    };

    runsc = lib.mkOption {
      type = lib.types.package;
      default = pkgs.gvisor;
      defaultText = lib.literalExpression "pkgs.gvisor";
      description = "The package with bin/runsc, 20240729 or newer.";
    };

    domain = lib.mkOption {
      type = lib.types.nullOr lib.types.str;
      default = null;
      example = "sandboxes.example.com";
      description = "What sandboxes are named under.";
    };

    region = lib.mkOption {
      type = lib.types.strMatching "[a-z]{3}";
      default = "loc";
      description = "Three lowercase letters, part of each new id.";
    };

    address = lib.mkOption {
      type = lib.types.str;
      default = "127.0.0.1";
      description = "The address to listen on.";
    };

    port = lib.mkOption {
      type = lib.types.port;
      default = 8000;
      description = "The port to listen on.";
    };

    openFirewall = lib.mkOption {
      type = lib.types.bool;
      default = false;
      description = "Let others reach the port.";
    };

    tokenFile = lib.mkOption {
      type = lib.types.nullOr lib.types.path;
      default = null;
      description = "A file with the operator's token. Without one, a token is made and kept in the state folder.";
    };

    settings = lib.mkOption {
      type = json.type;
      default = { };
      example = { pool.size = 20; };
      description = "Further settings of the configuration file.";
    };

    environmentFiles = lib.mkOption {
      type = lib.types.listOf lib.types.path;
      default = [ ];
      description = "Files with variables that the settings name as _env.";
    };
  };

  config = lib.mkIf cfg.enable {
    environment.systemPackages = [ cfg.package ];

    boot.kernelModules = [ "loop" "nf_tables" "veth" ];

    systemd.services.sandboxo = {
      description = "sandboxo";
      wantedBy = [ "multi-user.target" ];
      wants = [ "network-online.target" ];
      after = [ "network-online.target" ];
      path = [ cfg.runsc pkgs.e2fsprogs pkgs.iproute2 pkgs.nftables pkgs.gnutar pkgs.util-linux ];
      serviceConfig = {
        Type = "notify";
        ExecStart = "${cfg.package}/bin/sandboxo serve --config ${configFile}";
        StateDirectory = "sandboxo";
        StateDirectoryMode = "0700";
        EnvironmentFile = cfg.environmentFiles;
        LoadCredential = lib.optional (cfg.tokenFile != null) "token:${cfg.tokenFile}";
        # The keeper and its sandboxes outlive the appliance, also at an upgrade.
        KillMode = "process";
        Delegate = true;
        Restart = "on-failure";
        RestartSec = "1s";
        # Pauses under way have 95 seconds, and then open requests 20.
        TimeoutStopSec = "130s";
        LimitNOFILE = 1048576;
        TasksMax = "infinity";
      };
    };

    networking.firewall.allowedTCPPorts = lib.mkIf cfg.openFirewall [ cfg.port ];
  };
}
